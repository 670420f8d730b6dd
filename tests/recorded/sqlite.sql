-- version 30
CREATE TABLE accounts (
 id INTEGER PRIMARY KEY,
 name TEXT NOT NULL,
 roles TEXT NOT NULL,
 created_at BIGINT NOT NULL
, login TEXT);
CREATE TABLE balances (
 account BIGINT PRIMARY KEY,
 kudos BIGINT NOT NULL
, floor BIGINT, held BIGINT NOT NULL DEFAULT 0);
CREATE TABLE collection_styles (
 collection TEXT NOT NULL,
 style TEXT NOT NULL,
 place BIGINT NOT NULL,
 PRIMARY KEY (collection, style)
);
CREATE TABLE collections (
 number INTEGER PRIMARY KEY,
 id TEXT NOT NULL UNIQUE,
 owner BIGINT NOT NULL,
 making TEXT NOT NULL,
 name TEXT NOT NULL,
 info TEXT,
 public BIGINT NOT NULL,
 use_count BIGINT NOT NULL,
 created_at BIGINT NOT NULL,
 UNIQUE (owner, name)
);
CREATE TABLE coordinators (
 epoch BIGINT PRIMARY KEY,
 renewed_at BIGINT NOT NULL
);
CREATE TABLE counters (
 name TEXT PRIMARY KEY,
 value BIGINT NOT NULL
);
CREATE TABLE credit_entries (
 id INTEGER PRIMARY KEY,
 account BIGINT NOT NULL,
 job TEXT,
 promotional BIGINT NOT NULL,
 free BIGINT NOT NULL,
 paid BIGINT NOT NULL,
 at BIGINT NOT NULL
);
CREATE TABLE credit_holds (
 job TEXT PRIMARY KEY,
 account BIGINT NOT NULL,
 promotional BIGINT NOT NULL,
 free BIGINT NOT NULL,
 paid BIGINT NOT NULL,
 day BIGINT NOT NULL,
 at BIGINT NOT NULL
, owner BIGINT NOT NULL DEFAULT 0);
CREATE TABLE credits (
 account BIGINT PRIMARY KEY,
 paid BIGINT NOT NULL,
 promotional BIGINT NOT NULL,
 day BIGINT NOT NULL,
 free_used BIGINT NOT NULL,
 requests BIGINT NOT NULL
);
CREATE TABLE erasures (
 account BIGINT PRIMARY KEY,
 at BIGINT NOT NULL
);
CREATE TABLE filters (
 id INTEGER PRIMARY KEY,
 regex TEXT NOT NULL,
 kind BIGINT NOT NULL,
 description TEXT,
 replacement TEXT NOT NULL,
 editor BIGINT NOT NULL,
 changed_at BIGINT NOT NULL
);
CREATE TABLE holds (
 request TEXT PRIMARY KEY,
 account BIGINT NOT NULL,
 amount BIGINT NOT NULL,
 at BIGINT NOT NULL
, owner BIGINT NOT NULL DEFAULT 0);
CREATE TABLE key_holds (
 request TEXT PRIMARY KEY,
 shared_key TEXT NOT NULL,
 amount BIGINT NOT NULL,
 at BIGINT NOT NULL
, owner BIGINT NOT NULL DEFAULT 0);
CREATE TABLE keys (
 id INTEGER PRIMARY KEY,
 public_id TEXT NOT NULL UNIQUE,
 account BIGINT NOT NULL,
 digest TEXT NOT NULL UNIQUE,
 label TEXT NOT NULL,
 scopes TEXT NOT NULL,
 worker_name TEXT,
 created_at BIGINT NOT NULL,
 expires_at BIGINT,
 revoked_at BIGINT,
 revision BIGINT NOT NULL
, joins BIGINT NOT NULL DEFAULT 0);
CREATE TABLE ledger (
 id INTEGER PRIMARY KEY,
 job TEXT NOT NULL,
 account BIGINT NOT NULL,
 worker BIGINT,
 reason TEXT NOT NULL,
 amount BIGINT NOT NULL,
 at BIGINT NOT NULL
);
CREATE TABLE made (
 id INTEGER PRIMARY KEY,
 kind TEXT NOT NULL,
 model TEXT NOT NULL,
 at BIGINT NOT NULL,
 outputs BIGINT NOT NULL,
 size BIGINT NOT NULL,
 done BIGINT NOT NULL,
 busy_ms BIGINT NOT NULL
, reward BIGINT NOT NULL DEFAULT 0, delivered BIGINT NOT NULL DEFAULT 0, failed BIGINT NOT NULL DEFAULT 0, firsts BIGINT NOT NULL DEFAULT 0, first_ms BIGINT NOT NULL DEFAULT 0, total_ms BIGINT NOT NULL DEFAULT 0);
CREATE TABLE modes (
 name TEXT PRIMARY KEY,
 is_on BIGINT NOT NULL
);
CREATE TABLE openings (
 account BIGINT PRIMARY KEY,
 kudos BIGINT NOT NULL
);
CREATE TABLE people (
 account BIGINT PRIMARY KEY,
 -- By what another service knows whoever logged in with it; pseudonymous are those who did not.
 login TEXT UNIQUE,
 contact TEXT,
 admin_comment TEXT,
 -- Jobs that may wait at a time; as the settings say where there is none.
 concurrency BIGINT,
 worker_invited BIGINT NOT NULL,
 public_workers BIGINT NOT NULL,
 monthly_kudos BIGINT NOT NULL,
 monthly_paid_at BIGINT,
 suspicion BIGINT NOT NULL,
 deleted_at BIGINT,
 proxy_passkey TEXT UNIQUE
);
CREATE TABLE postings (
 id TEXT PRIMARY KEY,
 cause TEXT NOT NULL,
 about TEXT NOT NULL,
 once TEXT UNIQUE,
 terms TEXT NOT NULL,
 at BIGINT NOT NULL
);
CREATE TABLE prompt_hits (
 id INTEGER PRIMARY KEY,
 network TEXT NOT NULL,
 at BIGINT NOT NULL
);
CREATE TABLE ratings (
 job TEXT PRIMARY KEY,
 rating BIGINT,
 artifacts BIGINT,
 best BIGINT NOT NULL,
 at BIGINT NOT NULL
);
CREATE TABLE records (
 account BIGINT PRIMARY KEY,
 multiplier BIGINT NOT NULL DEFAULT 1000,
 used_pixelsteps BIGINT NOT NULL DEFAULT 0,
 used_tokens BIGINT NOT NULL DEFAULT 0,
 made_pixelsteps BIGINT NOT NULL DEFAULT 0,
 made_tokens BIGINT NOT NULL DEFAULT 0,
 asked_images BIGINT NOT NULL DEFAULT 0,
 asked_texts BIGINT NOT NULL DEFAULT 0,
 asked_interrogations BIGINT NOT NULL DEFAULT 0,
 made_images BIGINT NOT NULL DEFAULT 0,
 made_texts BIGINT NOT NULL DEFAULT 0,
 made_interrogations BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE requests (
 id TEXT PRIMARY KEY,
 account BIGINT NOT NULL,
 kind TEXT NOT NULL,
 body TEXT NOT NULL,
 accepted_at BIGINT NOT NULL,
 expires_at BIGINT NOT NULL,
 cancelled BIGINT NOT NULL
, fee BIGINT NOT NULL DEFAULT 0, owner BIGINT NOT NULL DEFAULT 0);
CREATE TABLE responses (
 id TEXT PRIMARY KEY,
 account BIGINT NOT NULL,
 previous TEXT,
 response TEXT NOT NULL,
 input TEXT NOT NULL,
 body TEXT,
 expires_at BIGINT NOT NULL
, model TEXT, begun BIGINT NOT NULL DEFAULT 0, bytes BIGINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL DEFAULT 0, owner BIGINT NOT NULL DEFAULT 0);
CREATE TABLE results (
 job TEXT PRIMARY KEY,
 request TEXT NOT NULL,
 worker BIGINT,
 model TEXT NOT NULL,
 state TEXT NOT NULL,
 reason TEXT NOT NULL,
 output TEXT NOT NULL,
 charge BIGINT NOT NULL
, forgiven BIGINT NOT NULL DEFAULT 0);
CREATE TABLE rigs (
 worker BIGINT PRIMARY KEY,
 trade TEXT NOT NULL DEFAULT '',
 agent TEXT NOT NULL DEFAULT '',
 address TEXT NOT NULL DEFAULT '',
 threads BIGINT NOT NULL DEFAULT 1,
 nsfw BIGINT NOT NULL DEFAULT 0,
 models TEXT NOT NULL DEFAULT '[]',
 -- What else it takes, as words; and its limits, where its trade has them.
 takes TEXT NOT NULL DEFAULT '',
 max_pixels BIGINT NOT NULL DEFAULT 0,
 max_length BIGINT NOT NULL DEFAULT 0,
 max_context BIGINT NOT NULL DEFAULT 0,
 seen_at BIGINT NOT NULL DEFAULT 0,
 info TEXT NOT NULL DEFAULT '',
 maintenance BIGINT NOT NULL DEFAULT 0,
 maintenance_note TEXT NOT NULL DEFAULT '',
 paused BIGINT NOT NULL DEFAULT 0,
 team BIGINT,
 -- Sums: seconds, jobs, thousandths of kudos, and pixelsteps, tokens or forms.
 uptime BIGINT NOT NULL DEFAULT 0,
 fulfilled BIGINT NOT NULL DEFAULT 0,
 uncompleted BIGINT NOT NULL DEFAULT 0,
 earned BIGINT NOT NULL DEFAULT 0,
 rewarded BIGINT NOT NULL DEFAULT 0,
 work BIGINT NOT NULL DEFAULT 0,
 -- Thousandths of pixelsteps, tokens or forms in a second.
 speed BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE rollups (
 kind TEXT NOT NULL,
 model TEXT NOT NULL,
 span BIGINT NOT NULL,
 at BIGINT NOT NULL,
 outputs BIGINT NOT NULL,
 size BIGINT NOT NULL,
 done BIGINT NOT NULL,
 busy_ms BIGINT NOT NULL, reward BIGINT NOT NULL DEFAULT 0, delivered BIGINT NOT NULL DEFAULT 0, failed BIGINT NOT NULL DEFAULT 0, firsts BIGINT NOT NULL DEFAULT 0, first_ms BIGINT NOT NULL DEFAULT 0, total_ms BIGINT NOT NULL DEFAULT 0,
 PRIMARY KEY (kind, model, span, at)
);
CREATE TABLE settings (
 name TEXT PRIMARY KEY,
 value TEXT NOT NULL
);
CREATE TABLE settled (
 job TEXT PRIMARY KEY,
 request TEXT NOT NULL,
 account BIGINT NOT NULL,
 worker BIGINT,
 kind TEXT NOT NULL,
 model TEXT NOT NULL,
 state TEXT NOT NULL,
 reason TEXT NOT NULL,
 attempts BIGINT NOT NULL,
 prompt_tokens BIGINT NOT NULL,
 completion_tokens BIGINT NOT NULL,
 paid_tokens BIGINT NOT NULL,
 reward BIGINT NOT NULL,
 charge BIGINT NOT NULL,
 accepted_at BIGINT NOT NULL,
 queued_ms BIGINT,
 first_output_ms BIGINT,
 total_ms BIGINT NOT NULL
, cost BIGINT);
CREATE TABLE shared_keys (
 id TEXT PRIMARY KEY,
 owner BIGINT NOT NULL,
 name TEXT,
 budget BIGINT,
 utilized BIGINT NOT NULL,
 expires_at BIGINT,
 max_image_pixels BIGINT NOT NULL,
 max_image_steps BIGINT NOT NULL,
 max_text_tokens BIGINT NOT NULL,
 created_at BIGINT NOT NULL
, for_styles BIGINT NOT NULL DEFAULT 0, held BIGINT NOT NULL DEFAULT 0, sealed TEXT);
CREATE TABLE style_words (
 style TEXT NOT NULL,
 what TEXT NOT NULL,
 word TEXT NOT NULL,
 PRIMARY KEY (style, what, word)
);
CREATE TABLE styles (
 number INTEGER PRIMARY KEY,
 id TEXT NOT NULL UNIQUE,
 owner BIGINT NOT NULL,
 making TEXT NOT NULL,
 name TEXT NOT NULL,
 info TEXT,
 prompt TEXT NOT NULL,
 params TEXT NOT NULL,
 public BIGINT NOT NULL,
 nsfw BIGINT NOT NULL,
 tags TEXT NOT NULL,
 models TEXT NOT NULL,
 examples TEXT NOT NULL,
 shared_key TEXT,
 use_count BIGINT NOT NULL,
 created_at BIGINT NOT NULL,
 UNIQUE (owner, name)
);
CREATE TABLE suspicions (
 id INTEGER PRIMARY KEY,
 account BIGINT NOT NULL,
 worker BIGINT NOT NULL,
 reason TEXT NOT NULL,
 at BIGINT NOT NULL
);
CREATE TABLE tallies (
 account BIGINT NOT NULL,
 cause TEXT NOT NULL,
 kudos BIGINT NOT NULL,
 PRIMARY KEY (account, cause)
);
CREATE TABLE teams (
 id INTEGER PRIMARY KEY,
 public_id TEXT NOT NULL UNIQUE,
 name TEXT NOT NULL UNIQUE,
 info TEXT NOT NULL,
 creator BIGINT NOT NULL,
 created_at BIGINT NOT NULL,
 fulfilled BIGINT NOT NULL DEFAULT 0,
 earned BIGINT NOT NULL DEFAULT 0,
 uptime BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE timeouts (
 network TEXT PRIMARY KEY,
 until BIGINT NOT NULL
);
CREATE TABLE worker_addresses (
 worker BIGINT PRIMARY KEY,
 address TEXT NOT NULL
);
CREATE TABLE worker_messages (
 id TEXT PRIMARY KEY,
 worker BIGINT,
 author BIGINT NOT NULL,
 message TEXT NOT NULL,
 origin TEXT NOT NULL,
 created_at BIGINT NOT NULL,
 expires_at BIGINT NOT NULL
);
CREATE TABLE workers (
 id INTEGER PRIMARY KEY,
 public_id TEXT NOT NULL UNIQUE,
 name TEXT NOT NULL UNIQUE,
 owner BIGINT NOT NULL,
 trusted BIGINT NOT NULL,
 created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX accounts_login ON accounts (login);
CREATE INDEX accounts_name ON accounts (name);
CREATE INDEX collection_styles_style ON collection_styles (style);
CREATE INDEX collections_name ON collections (name);
CREATE INDEX collections_popular ON collections (public, use_count);
CREATE INDEX credit_entries_at ON credit_entries (at);
CREATE INDEX credit_holds_account ON credit_holds (account);
CREATE INDEX keys_revision ON keys (revision);
CREATE INDEX ledger_at ON ledger (at);
CREATE INDEX postings_at ON postings (at);
CREATE INDEX prompt_hits_network ON prompt_hits (network);
CREATE INDEX requests_expiry ON requests (expires_at);
CREATE INDEX responses_expires_at ON responses (expires_at);
CREATE INDEX responses_open ON responses (id, account, model) WHERE body IS NOT NULL;
CREATE INDEX responses_sizes ON responses (account, id, previous, bytes);
CREATE INDEX results_request ON results (request);
CREATE INDEX rigs_seen ON rigs (seen_at);
CREATE INDEX rigs_team ON rigs (team);
CREATE INDEX rollups_at ON rollups (span, at);
CREATE INDEX settled_account ON settled (account, accepted_at);
CREATE INDEX settled_ended ON settled ((accepted_at + total_ms));
CREATE INDEX shared_keys_owner ON shared_keys (owner);
CREATE INDEX styles_name ON styles (name);
CREATE INDEX styles_popular ON styles (making, public, use_count);
CREATE INDEX styles_shared_key ON styles (shared_key);
CREATE INDEX suspicions_account ON suspicions (account);
CREATE INDEX suspicions_worker ON suspicions (worker);
CREATE INDEX worker_messages_expiry ON worker_messages (expires_at);
CREATE INDEX worker_messages_worker ON worker_messages (worker);
CREATE INDEX workers_owner ON workers (owner);
