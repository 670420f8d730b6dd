"""The corpus of the demo model: chats made from our own frames and words, by seed, with nothing downloaded."""
