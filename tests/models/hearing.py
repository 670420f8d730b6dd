"""Whisper's real weights against faster-whisper: texts, times of segments and of words.

    python tests/models/hearing.py WORKER CACHE NAME=CTRANSLATE2_FOLDER...

Speech is espeak-ng's, in samples as both models hear them. Segments whose texts are drawn at random, at a temperature, are
no part of it. Prints a line for each model and sound; fails below 95 % of the segments of any.
"""

import json
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

from faster_whisper import WhisperModel, decode_audio

LIGHTHOUSES = """The history of lighthouses begins with fires on hilltops. Sailors needed a mark that they could see from far
away. A new tower was built on a rock in the sea, and it stood for more than one hundred years. Modern lights turn slowly, and
every lighthouse has its own rhythm. Captains know the rhythm by heart. When fog comes, a deep horn takes the place of the
light. It can be heard for many miles. Today most of the towers stand empty. Machines do the work that people did before. Some
houses are now small hotels, where guests sleep beside the old stairs and listen to the wind and the waves. On Sunday morning
the keeper climbs up one more time. He cleans the glass, writes a few lines into his book, and looks at the horizon."""
GERMAN = """Guten Morgen. Heute ist ein schöner Tag. Wir gehen zusammen in den Wald und suchen Pilze. Am Abend kochen wir eine Suppe."""
MARKET = """The market opens at six in the morning. Farmers bring apples, carrots, bread and cheese from the villages around the
town. Children run between the tables while their parents talk about the weather. A man with a long beard sells honey from his
own bees. He says that the summer was too dry and that the flowers came late. Next to him a woman repairs old clocks. She needs
a quiet hand and a good lamp, and she never looks up before the work is done. At noon the bell of the church rings twelve times.
Then everybody goes home, and the square is empty again. Only the pigeons stay and look for bread between the stones."""
REPEATED = "The train to the coast leaves from platform nine. "
QUESTION = "Where is the station, please? The train leaves in ten minutes."
# Parts of espeak-ng (voice, words a minute, text) and of silence (seconds), and the language that is said to both.
SOUNDS = {
    "long": ([("en-us", 140, LIGHTHOUSES)], None),
    "quick": ([("en-gb", 175, "Please send the report before noon. The meeting begins at two, and everybody is invited.")], None),
    "german": ([("de", 140, GERMAN)], "de"),
    "two minutes": ([("en-us", 130, LIGHTHOUSES), 1, ("en-gb", 130, MARKET)], None),
    "repetition": ([("en-us", 150, 8 * REPEATED)], None),
    "silence": ([3, ("en-us", 140, QUESTION), 35, ("en-us", 140, "Nobody answered. So we asked again.")], None),
    "change of language": ([("en-us", 140, QUESTION + " We have to hurry."), 30, ("de", 140, GERMAN)], None),
}
# Not for models that know English alone.
GERMAN_SOUNDS = {"german", "change of language"}
RATE = 16_000
SHARE = .95
STEP = .0201


def speak(path, parts):
    with tempfile.NamedTemporaryFile(suffix=".wav") as spoken, wave.open(str(path), "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", None))
        for part in parts:
            if isinstance(part, int):
                out.writeframes(bytes(2 * RATE * part))
                continue
            voice, speed, text = part
            subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", spoken.name, text], check=True)
            samples = decode_audio(spoken.name, sampling_rate=RATE)
            out.writeframes((samples * 32767).round().astype("<i2").tobytes())


def close(one, other):
    return abs(one - other) <= STEP


def is_same(one, other):
    return one.text == other["text"] and close(one.start, other["start"]) and close(one.end, other["end"])


def compare(theirs, ours):
    """Segments that are the same, and words of theirs with the same times."""
    theirs = [segment for segment in theirs if segment.temperature == 0]
    segments = [segment for segment in ours["segments"] if segment["temperature"] == 0]
    same = sum(any(is_same(one, other) for other in segments) for one in theirs)
    words = [word for segment in theirs for word in segment.words]
    timed = sum(any(one.word.strip() == other["word"].strip() and close(one.start, other["start"]) and close(one.end, other["end"])
                    for other in ours["words"]) for one in words)
    return same, max(len(theirs), len(segments)), timed, len(words)


def main(worker, cache, *models):
    failed = False
    for name, folder in (model.split("=") for model in models):
        reference = WhisperModel(folder, device="cpu", compute_type="float32")
        for sound, (parts, language) in SOUNDS.items():
            if sound in GERMAN_SOUNDS and not reference.model.is_multilingual:
                continue
            path = Path(cache) / f"{sound}.wav"
            speak(path, parts)
            given = ["--language", language] if language else []
            run = subprocess.run([worker, "-q", "transcribe", path, "--model", Path(cache) / name, "--json", "--words", *given],
                                 check=True, capture_output=True)
            segments, _ = reference.transcribe(str(path), beam_size=1, language=language, word_timestamps=True)
            same, count, timed, words = compare(list(segments), json.loads(run.stdout))
            is_good = same >= SHARE * count
            failed |= not is_good
            print(f"{name} {sound}: {same} of {count} segments, {timed} of {words} words"
                  f"{'' if is_good else ': too few'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main(*sys.argv[1:])
