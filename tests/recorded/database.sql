-- key 0jObprUHv7HTa_1lSnIbWK
-- secret 032fda900c1d43904e7f9029a62693796a6901c75d31e62c200a4b67036ba01f
BEGIN TRANSACTION;
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    created_at BIGINT NOT NULL
, login TEXT);
INSERT INTO "accounts" VALUES(-1,'house','',0,NULL);
INSERT INTO "accounts" VALUES(0,'Anonymous','',0,NULL);
INSERT INTO "accounts" VALUES(1,'admin','user moderator admin worker_owner trusted customizer',1796027392665,'admin');
CREATE TABLE balances (
    account BIGINT PRIMARY KEY,
    kudos BIGINT NOT NULL
, floor BIGINT, held BIGINT NOT NULL DEFAULT 0);
INSERT INTO "balances" VALUES(0,0,-50000,0);
INSERT INTO "balances" VALUES(-1,-14100,NULL,0);
INSERT INTO "balances" VALUES(1,14100,14000,0);
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
, address TEXT NOT NULL DEFAULT '');
INSERT INTO "coordinators" VALUES(1,0,'');
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO "counters" VALUES('schema',32);
INSERT INTO "counters" VALUES('keys',1);
INSERT INTO "counters" VALUES('probe',23);
INSERT INTO "counters" VALUES('modes',0);
INSERT INTO "counters" VALUES('filters',0);
INSERT INTO "counters" VALUES('timeouts',0);
INSERT INTO "counters" VALUES('messages',0);
INSERT INTO "counters" VALUES('workers',1);
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
INSERT INTO "keys" VALUES(1,'8bef82bf0c07',1,'1d51f32ba0255e3b039c4462a84204808670a8c1ed3bfe5652593698a0d2a586','first start','inference.submit worker.connect account.read account.manage',NULL,1796027392668,NULL,NULL,1,0);
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    account BIGINT NOT NULL,
    worker BIGINT,
    reason TEXT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);
INSERT INTO "ledger" VALUES(1,'01a22b93-229a-77f0-9c0d-09ad78985e56',-1,NULL,'start',-14000,1796027392665);
INSERT INTO "ledger" VALUES(2,'01a22b93-229a-77f0-9c0d-09ad78985e56',1,NULL,'start',14000,1796027392665);
INSERT INTO "ledger" VALUES(3,'01a22b93-2b15-7afb-925f-43722444893f',1,NULL,'charge',-1100,1796027394919);
INSERT INTO "ledger" VALUES(4,'01a22b93-2b15-7afb-925f-43722444893f',1,1,'reward',100,1796027394919);
INSERT INTO "ledger" VALUES(5,'01a22b93-2b15-7afb-925f-43722444893f',-1,NULL,'fee',1000,1796027394919);
INSERT INTO "ledger" VALUES(6,'01a22b93-2b15-7afb-925f-43722444893f',-1,NULL,'forgiven',-1100,1796027394919);
INSERT INTO "ledger" VALUES(7,'01a22b93-2b15-7afb-925f-43722444893f',1,NULL,'forgiven',1100,1796027394919);
INSERT INTO "ledger" VALUES(8,'01a22b93-2bdc-753a-9bc9-ac701f117195',1,NULL,'charge',-1100,1796027395139);
INSERT INTO "ledger" VALUES(9,'01a22b93-2bdc-753a-9bc9-ac701f117195',1,1,'reward',100,1796027395139);
INSERT INTO "ledger" VALUES(10,'01a22b93-2bdc-753a-9bc9-ac701f117195',-1,NULL,'fee',1000,1796027395139);
INSERT INTO "ledger" VALUES(11,'01a22b93-2bdc-753a-9bc9-ac701f117195',-1,NULL,'forgiven',-1000,1796027395139);
INSERT INTO "ledger" VALUES(12,'01a22b93-2bdc-753a-9bc9-ac701f117195',1,NULL,'forgiven',1000,1796027395139);
INSERT INTO "ledger" VALUES(13,'01a22b93-2c57-7202-977c-a3dde147bb64',1,NULL,'charge',-1100,1796027395256);
INSERT INTO "ledger" VALUES(14,'01a22b93-2c57-7202-977c-a3dde147bb64',1,1,'reward',100,1796027395256);
INSERT INTO "ledger" VALUES(15,'01a22b93-2c57-7202-977c-a3dde147bb64',-1,NULL,'fee',1000,1796027395256);
INSERT INTO "ledger" VALUES(16,'01a22b93-2c57-7202-977c-a3dde147bb64',-1,NULL,'forgiven',-1000,1796027395256);
INSERT INTO "ledger" VALUES(17,'01a22b93-2c57-7202-977c-a3dde147bb64',1,NULL,'forgiven',1000,1796027395256);
INSERT INTO "ledger" VALUES(18,'01a22b93-2cca-71d3-bc93-36bb43994a3e',1,NULL,'charge',-1100,1796027395501);
INSERT INTO "ledger" VALUES(19,'01a22b93-2cca-71d3-bc93-36bb43994a3e',1,1,'reward',100,1796027395501);
INSERT INTO "ledger" VALUES(20,'01a22b93-2cca-71d3-bc93-36bb43994a3e',-1,NULL,'fee',1000,1796027395501);
INSERT INTO "ledger" VALUES(21,'01a22b93-2cca-71d3-bc93-36bb43994a3e',-1,NULL,'forgiven',-1000,1796027395501);
INSERT INTO "ledger" VALUES(22,'01a22b93-2cca-71d3-bc93-36bb43994a3e',1,NULL,'forgiven',1000,1796027395501);
INSERT INTO "ledger" VALUES(23,'01a22b93-2dc0-7e93-82a3-b15aea6b842c',1,NULL,'charge',-1100,1796027395659);
INSERT INTO "ledger" VALUES(24,'01a22b93-2dc0-7e93-82a3-b15aea6b842c',1,1,'reward',100,1796027395659);
INSERT INTO "ledger" VALUES(25,'01a22b93-2dc0-7e93-82a3-b15aea6b842c',-1,NULL,'fee',1000,1796027395659);
INSERT INTO "ledger" VALUES(26,'01a22b93-2dc0-7e93-82a3-b15aea6b842c',-1,NULL,'forgiven',-1000,1796027395659);
INSERT INTO "ledger" VALUES(27,'01a22b93-2dc0-7e93-82a3-b15aea6b842c',1,NULL,'forgiven',1000,1796027395659);
INSERT INTO "ledger" VALUES(28,'01a22b93-2e5c-748d-9f41-70611370af8c',1,NULL,'charge',-1100,1796027395741);
INSERT INTO "ledger" VALUES(29,'01a22b93-2e5c-748d-9f41-70611370af8c',1,1,'reward',100,1796027395741);
INSERT INTO "ledger" VALUES(30,'01a22b93-2e5c-748d-9f41-70611370af8c',-1,NULL,'fee',1000,1796027395741);
INSERT INTO "ledger" VALUES(31,'01a22b93-2e5c-748d-9f41-70611370af8c',-1,NULL,'forgiven',-1000,1796027395741);
INSERT INTO "ledger" VALUES(32,'01a22b93-2e5c-748d-9f41-70611370af8c',1,NULL,'forgiven',1000,1796027395741);
INSERT INTO "ledger" VALUES(33,'01a22b93-2eb0-7267-8c98-fdbe196fb369',1,NULL,'charge',-1100,1796027395865);
INSERT INTO "ledger" VALUES(34,'01a22b93-2eb0-7267-8c98-fdbe196fb369',1,1,'reward',100,1796027395865);
INSERT INTO "ledger" VALUES(35,'01a22b93-2eb0-7267-8c98-fdbe196fb369',-1,NULL,'fee',1000,1796027395865);
INSERT INTO "ledger" VALUES(36,'01a22b93-2eb0-7267-8c98-fdbe196fb369',-1,NULL,'forgiven',-1000,1796027395865);
INSERT INTO "ledger" VALUES(37,'01a22b93-2eb0-7267-8c98-fdbe196fb369',1,NULL,'forgiven',1000,1796027395865);
INSERT INTO "ledger" VALUES(38,'01a22b93-2f21-7d0b-9294-02cfe9dfc77d',1,NULL,'charge',-1100,1796027395987);
INSERT INTO "ledger" VALUES(39,'01a22b93-2f21-7d0b-9294-02cfe9dfc77d',1,1,'reward',100,1796027395987);
INSERT INTO "ledger" VALUES(40,'01a22b93-2f21-7d0b-9294-02cfe9dfc77d',-1,NULL,'fee',1000,1796027395987);
INSERT INTO "ledger" VALUES(41,'01a22b93-2f21-7d0b-9294-02cfe9dfc77d',-1,NULL,'forgiven',-1000,1796027395987);
INSERT INTO "ledger" VALUES(42,'01a22b93-2f21-7d0b-9294-02cfe9dfc77d',1,NULL,'forgiven',1000,1796027395987);
INSERT INTO "ledger" VALUES(43,'01a22b93-2fa3-78a1-992e-67d338f66e97',1,NULL,'charge',-1100,1796027396088);
INSERT INTO "ledger" VALUES(44,'01a22b93-2fa3-78a1-992e-67d338f66e97',1,1,'reward',100,1796027396088);
INSERT INTO "ledger" VALUES(45,'01a22b93-2fa3-78a1-992e-67d338f66e97',-1,NULL,'fee',1000,1796027396088);
INSERT INTO "ledger" VALUES(46,'01a22b93-2fa3-78a1-992e-67d338f66e97',-1,NULL,'forgiven',-1000,1796027396088);
INSERT INTO "ledger" VALUES(47,'01a22b93-2fa3-78a1-992e-67d338f66e97',1,NULL,'forgiven',1000,1796027396088);
INSERT INTO "ledger" VALUES(48,'01a22b93-3009-753a-b90e-d32fe8adf10c',1,NULL,'charge',-1100,1796027396193);
INSERT INTO "ledger" VALUES(49,'01a22b93-3009-753a-b90e-d32fe8adf10c',1,1,'reward',100,1796027396193);
INSERT INTO "ledger" VALUES(50,'01a22b93-3009-753a-b90e-d32fe8adf10c',-1,NULL,'fee',1000,1796027396193);
INSERT INTO "ledger" VALUES(51,'01a22b93-3009-753a-b90e-d32fe8adf10c',-1,NULL,'forgiven',-1000,1796027396193);
INSERT INTO "ledger" VALUES(52,'01a22b93-3009-753a-b90e-d32fe8adf10c',1,NULL,'forgiven',1000,1796027396193);
INSERT INTO "ledger" VALUES(53,'01a22b93-30d2-7cc8-a4a3-868b12dd4273',1,NULL,'charge',-1100,1796027396409);
INSERT INTO "ledger" VALUES(54,'01a22b93-30d2-7cc8-a4a3-868b12dd4273',1,1,'reward',100,1796027396409);
INSERT INTO "ledger" VALUES(55,'01a22b93-30d2-7cc8-a4a3-868b12dd4273',-1,NULL,'fee',1000,1796027396409);
INSERT INTO "ledger" VALUES(56,'01a22b93-30d2-7cc8-a4a3-868b12dd4273',-1,NULL,'forgiven',-1000,1796027396409);
INSERT INTO "ledger" VALUES(57,'01a22b93-30d2-7cc8-a4a3-868b12dd4273',1,NULL,'forgiven',1000,1796027396409);
INSERT INTO "ledger" VALUES(58,'01a22b93-317e-7b15-ad3e-6aca88665a6f',1,NULL,'charge',-4121,1796027424657);
INSERT INTO "ledger" VALUES(59,'01a22b93-317e-7b15-ad3e-6aca88665a6f',1,1,'reward',3121,1796027424657);
INSERT INTO "ledger" VALUES(60,'01a22b93-317e-7b15-ad3e-6aca88665a6f',-1,NULL,'fee',1000,1796027424657);
INSERT INTO "ledger" VALUES(61,'01a22b93-317e-7b15-ad3e-6aca88665a6f',-1,NULL,'forgiven',-4021,1796027424657);
INSERT INTO "ledger" VALUES(62,'01a22b93-317e-7b15-ad3e-6aca88665a6f',1,NULL,'forgiven',4021,1796027424657);
INSERT INTO "ledger" VALUES(63,'01a22b93-9f9b-7cad-8237-dec1764f77fa',1,NULL,'charge',-1133,1796027440574);
INSERT INTO "ledger" VALUES(64,'01a22b93-9f9b-7cad-8237-dec1764f77fa',1,1,'reward',133,1796027440574);
INSERT INTO "ledger" VALUES(65,'01a22b93-9f9b-7cad-8237-dec1764f77fa',-1,NULL,'fee',1000,1796027440574);
INSERT INTO "ledger" VALUES(66,'01a22b93-ddd3-78ec-b9a0-22bacd24f046',1,NULL,'charge',-1666,1796027442171);
INSERT INTO "ledger" VALUES(67,'01a22b93-ddd3-78ec-b9a0-22bacd24f046',1,1,'reward',666,1796027442171);
INSERT INTO "ledger" VALUES(68,'01a22b93-ddd3-78ec-b9a0-22bacd24f046',-1,NULL,'fee',1000,1796027442171);
INSERT INTO "ledger" VALUES(69,'01a22b93-e405-72a7-bdba-a6b9d886edd0',1,NULL,'charge',-1100,1796027443744);
INSERT INTO "ledger" VALUES(70,'01a22b93-e405-72a7-bdba-a6b9d886edd0',1,1,'reward',100,1796027443744);
INSERT INTO "ledger" VALUES(71,'01a22b93-e405-72a7-bdba-a6b9d886edd0',-1,NULL,'fee',1000,1796027443744);
INSERT INTO "ledger" VALUES(72,'01a22b93-ea48-7ebf-9ec6-940bb1e4ec9c',1,NULL,'charge',-1100,1796027445925);
INSERT INTO "ledger" VALUES(73,'01a22b93-ea48-7ebf-9ec6-940bb1e4ec9c',1,1,'reward',100,1796027445925);
INSERT INTO "ledger" VALUES(74,'01a22b93-ea48-7ebf-9ec6-940bb1e4ec9c',-1,NULL,'fee',1000,1796027445925);
INSERT INTO "ledger" VALUES(75,'01a22b93-ea48-7ebf-9ec6-940bb1e4ec9c',-1,NULL,'forgiven',-979,1796027445925);
INSERT INTO "ledger" VALUES(76,'01a22b93-ea48-7ebf-9ec6-940bb1e4ec9c',1,NULL,'forgiven',979,1796027445925);
INSERT INTO "ledger" VALUES(77,'01a22b93-f33d-7ef2-9805-7bd7ea14af5c',1,NULL,'charge',-1100,1796027458160);
INSERT INTO "ledger" VALUES(78,'01a22b93-f33d-7ef2-9805-7bd7ea14af5c',1,1,'reward',100,1796027458160);
INSERT INTO "ledger" VALUES(79,'01a22b93-f33d-7ef2-9805-7bd7ea14af5c',-1,NULL,'fee',1000,1796027458160);
INSERT INTO "ledger" VALUES(80,'01a22b93-f33d-7ef2-9805-7bd7ea14af5c',-1,NULL,'forgiven',-1000,1796027458160);
INSERT INTO "ledger" VALUES(81,'01a22b93-f33d-7ef2-9805-7bd7ea14af5c',1,NULL,'forgiven',1000,1796027458160);
INSERT INTO "ledger" VALUES(82,'01a22b94-22dd-77aa-a387-9574b9a93d3a',1,NULL,'charge',-1100,1796027460436);
INSERT INTO "ledger" VALUES(83,'01a22b94-22dd-77aa-a387-9574b9a93d3a',1,1,'reward',100,1796027460436);
INSERT INTO "ledger" VALUES(84,'01a22b94-22dd-77aa-a387-9574b9a93d3a',-1,NULL,'fee',1000,1796027460436);
INSERT INTO "ledger" VALUES(85,'01a22b94-22dd-77aa-a387-9574b9a93d3a',-1,NULL,'forgiven',-1000,1796027460436);
INSERT INTO "ledger" VALUES(86,'01a22b94-22dd-77aa-a387-9574b9a93d3a',1,NULL,'forgiven',1000,1796027460436);
INSERT INTO "ledger" VALUES(87,'01a22b94-2c01-7873-9387-d1307c4baca3',1,NULL,'charge',-1100,1796027460696);
INSERT INTO "ledger" VALUES(88,'01a22b94-2c01-7873-9387-d1307c4baca3',1,1,'reward',100,1796027460696);
INSERT INTO "ledger" VALUES(89,'01a22b94-2c01-7873-9387-d1307c4baca3',-1,NULL,'fee',1000,1796027460696);
INSERT INTO "ledger" VALUES(90,'01a22b94-2c01-7873-9387-d1307c4baca3',-1,NULL,'forgiven',-1000,1796027460696);
INSERT INTO "ledger" VALUES(91,'01a22b94-2c01-7873-9387-d1307c4baca3',1,NULL,'forgiven',1000,1796027460696);
INSERT INTO "ledger" VALUES(92,'01a22b94-2cb1-7906-9e52-196266fbb968',1,NULL,'charge',-1100,1796027460861);
INSERT INTO "ledger" VALUES(93,'01a22b94-2cb1-7906-9e52-196266fbb968',1,1,'reward',100,1796027460861);
INSERT INTO "ledger" VALUES(94,'01a22b94-2cb1-7906-9e52-196266fbb968',-1,NULL,'fee',1000,1796027460861);
INSERT INTO "ledger" VALUES(95,'01a22b94-2cb1-7906-9e52-196266fbb968',-1,NULL,'forgiven',-1000,1796027460861);
INSERT INTO "ledger" VALUES(96,'01a22b94-2cb1-7906-9e52-196266fbb968',1,NULL,'forgiven',1000,1796027460861);
INSERT INTO "ledger" VALUES(97,'01a22b94-2d07-706c-a698-0c7f7618b955',-1,NULL,'request',1000,1796027460871);
INSERT INTO "ledger" VALUES(98,'01a22b94-2d07-706c-a698-0c7f7618b955',1,NULL,'request',-1000,1796027460871);
INSERT INTO "ledger" VALUES(99,'01a22b94-2d07-706c-a698-0c7f7618b955',-1,NULL,'forgiven',-900,1796027460871);
INSERT INTO "ledger" VALUES(100,'01a22b94-2d07-706c-a698-0c7f7618b955',1,NULL,'forgiven',900,1796027460871);
INSERT INTO "ledger" VALUES(101,'01a22b94-2d06-75da-aa45-d97746e3c3f8',1,NULL,'charge',-2141,1796027462260);
INSERT INTO "ledger" VALUES(102,'01a22b94-2d06-75da-aa45-d97746e3c3f8',1,1,'reward',1141,1796027462260);
INSERT INTO "ledger" VALUES(103,'01a22b94-2d06-75da-aa45-d97746e3c3f8',-1,NULL,'fee',1000,1796027462260);
INSERT INTO "ledger" VALUES(104,'01a22b94-2d06-75da-aa45-d97746e3c3f8',-1,NULL,'forgiven',-2141,1796027462260);
INSERT INTO "ledger" VALUES(105,'01a22b94-2d06-75da-aa45-d97746e3c3f8',1,NULL,'forgiven',2141,1796027462260);
INSERT INTO "ledger" VALUES(106,'01a22b95-178c-743a-972b-1e68a83daf85',-1,NULL,'request',1000,1796027520908);
INSERT INTO "ledger" VALUES(107,'01a22b95-178c-743a-972b-1e68a83daf85',1,NULL,'request',-1000,1796027520908);
INSERT INTO "ledger" VALUES(108,'01a22b95-178b-7c51-a276-0a1dc3ed27c7',1,NULL,'charge',-1100,1796027521008);
INSERT INTO "ledger" VALUES(109,'01a22b95-178b-7c51-a276-0a1dc3ed27c7',1,1,'reward',100,1796027521008);
INSERT INTO "ledger" VALUES(110,'01a22b95-178b-7c51-a276-0a1dc3ed27c7',-1,NULL,'fee',1000,1796027521008);
INSERT INTO "ledger" VALUES(111,'01a22b95-178b-7c51-a276-0a1dc3ed27c7',-1,NULL,'forgiven',-959,1796027521008);
INSERT INTO "ledger" VALUES(112,'01a22b95-178b-7c51-a276-0a1dc3ed27c7',1,NULL,'forgiven',959,1796027521008);
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
INSERT INTO "made" VALUES(1,'text','demo-text',1796027521000,1,16,16,101,100,1,0,1,18,101);
CREATE TABLE modes (
    name TEXT PRIMARY KEY,
    is_on BIGINT NOT NULL
);
CREATE TABLE openings (
    account BIGINT PRIMARY KEY,
    kudos BIGINT NOT NULL
);
INSERT INTO "openings" VALUES(-1,0);
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
INSERT INTO "people" VALUES(0,NULL,NULL,NULL,500,0,0,0,NULL,0,NULL,NULL);
INSERT INTO "people" VALUES(1,NULL,NULL,NULL,NULL,0,0,0,NULL,0,NULL,NULL);
CREATE TABLE postings (
    id TEXT PRIMARY KEY,
    cause TEXT NOT NULL,
    about TEXT NOT NULL,
    once TEXT UNIQUE,
    terms TEXT NOT NULL,
    at BIGINT NOT NULL
);
INSERT INTO "postings" VALUES('01a22b93-229a-77f0-9c0d-09ad78985e56','start','',NULL,'start : -1 -14000, 1 14000',1796027392665);
INSERT INTO "postings" VALUES('01a22b94-2d07-706c-a698-0c7f7618b955','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1796027460871);
INSERT INTO "postings" VALUES('01a22b95-178c-743a-972b-1e68a83daf85','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1796027520908);
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
INSERT INTO "records" VALUES(1,1000,2097,165,2097,165,2,14,0,2,12,0);
CREATE TABLE replies (
    account BIGINT NOT NULL,
    key TEXT NOT NULL,
    sealed TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (account, key)
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
INSERT INTO "requests" VALUES('01a22b94-22dd-735d-8e8b-fb1bd659f06b',1,'audio','{"media":{"kind":"music","prompt":"Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep.","seconds":207.0,"is_speech":true,"format":"mp3"},"model":"demo-speech","count":1,"formats":["neutral"],"trusted":false,"price":null,"image_type":null,"client_ref":null,"progress_token":null,"document":null,"jobs":["01a22b94-22dd-77aa-a387-9574b9a93d3a"],"seed":381770222,"shared_key":null}',1796027458270,1796031058269,0,0,1);
INSERT INTO "requests" VALUES('01a22b94-2d06-71b2-b3b8-c0236d43b656',1,'image','{"request":{"prompt":"a red circle","params":{"n":1,"image_is_control":false,"return_control_map":false,"sampler_name":"k_euler_a","cfg_scale":5.0,"height":256,"width":256,"karras":true,"tiling":false,"hires_fix":false,"transparent":false,"steps":2,"seed":"1"},"nsfw":true,"trusted_workers":false,"validated_backends":false,"slow_workers":true,"extra_slow_workers":false,"censor_nsfw":true,"worker_blacklist":false,"models":["demo-image"],"source_processing":"img2img","r2":true,"shared":false,"replacement_filter":true,"dry_run":false,"disable_batching":false,"allow_downgrade":false},"jobs":["01a22b94-2d06-75da-aa45-d97746e3c3f8"],"seed":1569016167,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1796027460871,1796028060870,0,1000,1);
INSERT INTO "requests" VALUES('01a22b95-178b-7f83-88f6-3990b3082d59',1,'text','{"request":{"prompt":"Muster is","params":{"max_context_length":256,"max_length":16,"dynatemp_exponent":1.0},"trusted_workers":false,"validated_backends":false,"slow_workers":true,"worker_blacklist":false,"models":["demo-text"],"dry_run":false,"disable_batching":false,"allow_downgrade":false,"extra_slow_workers":false},"jobs":["01a22b95-178b-7c51-a276-0a1dc3ed27c7"],"seed":1482096114,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1796027520908,1796028720907,0,1000,1);
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
INSERT INTO "results" VALUES('01a22b94-22dd-77aa-a387-9574b9a93d3a','01a22b94-22dd-735d-8e8b-fb1bd659f06b',1,'demo-speech','delivered','stop','{"index":0,"seed":381770222,"key":"results/01a22b94-22dd-77aa-a387-9574b9a93d3a-1.mp3","content_type":"audio/mpeg","sha256":"50338bae511093d50b89cc2f3543d43c18603f5f752181467e128736205f3936"}',1100,1000);
INSERT INTO "results" VALUES('01a22b94-2d06-75da-aa45-d97746e3c3f8','01a22b94-2d06-71b2-b3b8-c0236d43b656',1,'demo-image','delivered','stop','{"index":0,"seed":1,"key":"results/01a22b94-2d06-75da-aa45-d97746e3c3f8-1.webp","content_type":"image/webp","sha256":"3070a5771a9bd0aa556ffa7fc3ee986e5f0686a6e60301beac9571e105566259","size":[256,256]}',2141,2141);
INSERT INTO "results" VALUES('01a22b95-178b-7c51-a276-0a1dc3ed27c7','01a22b95-178b-7f83-88f6-3990b3082d59',1,'demo-text','delivered','length','ensedTensedTensors and GGUF dG',1100,959);
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
INSERT INTO "rigs" VALUES(1,'','','',1,0,'[]','',0,0,0,1796027512678,'',0,'',0,NULL,89,24,0,6861,0,167,118975);
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
INSERT INTO "rollups" VALUES('text','demo-text',1000,1796027394000,1,12,12,81,100,1,0,1,26,81);
INSERT INTO "rollups" VALUES('text','demo-text',1000,1796027395000,7,140,101,841,700,7,0,7,599,841);
INSERT INTO "rollups" VALUES('text','demo-text',1000,1796027396000,3,36,36,273,300,5,0,5,306,393);
INSERT INTO "rollups" VALUES('image','demo-image',1000,1796027424000,1,1966080,1966080,28179,3121,1,0,1,28179,28179);
INSERT INTO "rollups" VALUES('audio','demo-music',1000,1796027442000,1,2,2,1576,666,1,0,1,1576,1576);
INSERT INTO "rollups" VALUES('video','demo-video',1000,1796027440000,1,69632,69632,15907,133,1,0,1,15907,15907);
INSERT INTO "rollups" VALUES('audio','demo-speech',1000,1796027443000,1,3,3,1563,100,1,0,1,1555,1563);
INSERT INTO "rollups" VALUES('audio','demo-speech',1000,1796027445000,1,3,3,2141,100,1,0,1,2097,2141);
INSERT INTO "rollups" VALUES('audio','demo-hearing',1000,1796027460000,2,6,6,163,200,2,0,2,89,163);
INSERT INTO "rollups" VALUES('audio','demo-speech',1000,1796027458000,1,14,14,12083,100,1,0,1,2056,12083);
INSERT INTO "rollups" VALUES('audio','demo-speech',1000,1796027460000,1,14,14,2167,100,1,0,1,2167,2167);
INSERT INTO "rollups" VALUES('image','demo-image',1000,1796027462000,1,131072,131072,1390,1141,1,0,1,1390,1390);
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO "settings" VALUES('secret_check','cdbc6c6375a8d1b0a5a324887dc7eef48114c77484fd1dfcb014c839580b6770');
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
INSERT INTO "settled" VALUES('01a22b93-2b15-7afb-925f-43722444893f','01a22b93-2b0d-75cd-a1b9-4a957dffdd93',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796027394838,0,26,81,NULL);
INSERT INTO "settled" VALUES('01a22b93-2bdc-753a-9bc9-ac701f117195','01a22b93-2bdb-7f63-9895-cd9b3b86a644',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796027395036,0,60,103,NULL);
INSERT INTO "settled" VALUES('01a22b93-2c57-7202-977c-a3dde147bb64','01a22b93-2c55-7f79-a460-9859ecd66ea8',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796027395159,0,90,97,NULL);
INSERT INTO "settled" VALUES('01a22b93-2cca-71d3-bc93-36bb43994a3e','01a22b93-2cc9-744a-a8da-5e0b5ad28432',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796027395277,0,177,224,NULL);
INSERT INTO "settled" VALUES('01a22b93-2dc0-7e93-82a3-b15aea6b842c','01a22b93-2dc0-7576-bdc4-234e56ffacf8',1,1,'text','demo-text','delivered','tool_calls',1,22,21,21,100,1100,1796027395525,0,124,134,NULL);
INSERT INTO "settled" VALUES('01a22b93-2e5c-748d-9f41-70611370af8c','01a22b93-2e5b-7d83-9871-58a3b979bb4a',1,1,'text','demo-text','delivered','length',1,2,12,12,100,1100,1796027395676,0,53,65,NULL);
INSERT INTO "settled" VALUES('01a22b93-2eb0-7267-8c98-fdbe196fb369','01a22b93-2eaf-740f-a40c-fbe56f6fef0d',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1796027395761,0,48,104,NULL);
INSERT INTO "settled" VALUES('01a22b93-2f21-7d0b-9294-02cfe9dfc77d','01a22b93-2f20-7a62-bcaf-8eb7de4ce2ee',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1796027395873,0,47,114,NULL);
INSERT INTO "settled" VALUES('01a22b93-2fa3-78a1-992e-67d338f66e97','01a22b93-2fa2-71c7-8122-eeef195284fd',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796027396003,0,85,85,NULL);
INSERT INTO "settled" VALUES('01a22b93-3009-753a-b90e-d32fe8adf10c','01a22b93-3008-778a-9ad7-c14194c31de9',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796027396108,0,85,85,NULL);
INSERT INTO "settled" VALUES('01a22b93-306f-7e77-a484-4b7d7a3261ff','01a22b93-306e-7f24-b750-34557b215695',1,1,'text','demo-text','delivered','stop',1,8,0,0,0,0,1796027396207,0,43,85,NULL);
INSERT INTO "settled" VALUES('01a22b93-30d2-7cc8-a4a3-868b12dd4273','01a22b93-30d1-7732-b808-9ce3ee840d35',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796027396306,0,58,103,NULL);
INSERT INTO "settled" VALUES('01a22b93-314b-737c-83a0-f0d1148e6cfe','01a22b93-314b-71b5-9b9c-87bf4d8fffb8',1,1,'text','demo-text','delivered','stop',1,4,0,0,0,0,1796027396427,0,35,35,NULL);
INSERT INTO "settled" VALUES('01a22b93-317e-7b15-ad3e-6aca88665a6f','01a22b93-317d-730c-87eb-5547c4ad0211',1,1,'image','demo-image','delivered','stop',1,0,0,0,3121,4121,1796027396478,0,28179,28179,NULL);
INSERT INTO "settled" VALUES('01a22b93-9f9b-7cad-8237-dec1764f77fa','01a22b93-9f9a-726b-be6e-cdf4a986960e',1,1,'video','demo-video','delivered','stop',1,0,0,0,133,1133,1796027424667,0,15907,15907,NULL);
INSERT INTO "settled" VALUES('01a22b93-ddd3-78ec-b9a0-22bacd24f046','01a22b93-ddd2-7f1b-b5b5-5a726d6193bf',1,1,'audio','demo-music','delivered','stop',1,0,0,0,666,1666,1796027440595,0,1576,1576,NULL);
INSERT INTO "settled" VALUES('01a22b93-e405-72a7-bdba-a6b9d886edd0','01a22b93-e402-7e59-b541-1557f0910d34',1,1,'audio','demo-speech','delivered','stop',1,32,0,0,100,1100,1796027442181,0,1555,1563,NULL);
INSERT INTO "settled" VALUES('01a22b93-ea48-7ebf-9ec6-940bb1e4ec9c','01a22b93-ea47-7fed-b7ba-ced50e7e21f5',1,1,'audio','demo-speech','delivered','stop',1,32,0,0,100,1100,1796027443784,0,2097,2141,NULL);
INSERT INTO "settled" VALUES('01a22b93-f33d-7ef2-9805-7bd7ea14af5c','01a22b93-f33c-74e4-82a8-1fe8a1574fa3',1,1,'audio','demo-speech','delivered','stop',1,197,0,0,100,1100,1796027446077,0,2056,12083,NULL);
INSERT INTO "settled" VALUES('01a22b94-22dd-77aa-a387-9574b9a93d3a','01a22b94-22dd-735d-8e8b-fb1bd659f06b',1,1,'audio','demo-speech','delivered','stop',1,0,0,0,100,1100,1796027458269,0,2167,2167,NULL);
INSERT INTO "settled" VALUES('01a22b94-2c01-7873-9387-d1307c4baca3','01a22b94-2b8e-7dba-90ad-b818b89a8666',1,1,'audio','demo-hearing','delivered','stop',1,108,0,0,100,1100,1796027460609,0,55,87,NULL);
INSERT INTO "settled" VALUES('01a22b94-2cb1-7906-9e52-196266fbb968','01a22b94-2c61-7010-9566-915046373591',1,1,'audio','demo-hearing','delivered','stop',1,108,0,0,100,1100,1796027460785,0,34,76,NULL);
INSERT INTO "settled" VALUES('01a22b94-2d06-75da-aa45-d97746e3c3f8','01a22b94-2d06-71b2-b3b8-c0236d43b656',1,1,'image','demo-image','delivered','stop',1,0,0,0,1141,2141,1796027460870,0,1390,1390,NULL);
INSERT INTO "settled" VALUES('01a22b95-178b-7c51-a276-0a1dc3ed27c7','01a22b95-178b-7f83-88f6-3990b3082d59',1,1,'text','demo-text','delivered','length',1,2,16,16,100,1100,1796027520907,0,18,101,NULL);
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
INSERT INTO "tallies" VALUES(-1,'start',-14000);
INSERT INTO "tallies" VALUES(1,'start',14000);
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
INSERT INTO "worker_addresses" VALUES(1,'127.0.0.1');
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
INSERT INTO "workers" VALUES(1,'77ceb598-b874-4670-9438-c37600da7380','rig',1,0,1796027394386);
CREATE INDEX accounts_name ON accounts (name);
CREATE INDEX keys_revision ON keys (revision);
CREATE INDEX settled_ended ON settled ((accepted_at + total_ms));
CREATE INDEX ledger_at ON ledger (at);
CREATE INDEX requests_expiry ON requests (expires_at);
CREATE INDEX results_request ON results (request);
CREATE INDEX postings_at ON postings (at);
CREATE INDEX workers_owner ON workers (owner);
CREATE INDEX styles_popular ON styles (making, public, use_count);
CREATE INDEX styles_name ON styles (name);
CREATE INDEX collections_popular ON collections (public, use_count);
CREATE INDEX collections_name ON collections (name);
CREATE INDEX collection_styles_style ON collection_styles (style);
CREATE INDEX rollups_at ON rollups (span, at);
CREATE INDEX rigs_seen ON rigs (seen_at);
CREATE INDEX worker_messages_expiry ON worker_messages (expires_at);
CREATE INDEX prompt_hits_network ON prompt_hits (network);
CREATE INDEX suspicions_account ON suspicions (account);
CREATE INDEX suspicions_worker ON suspicions (worker);
CREATE INDEX shared_keys_owner ON shared_keys (owner);
CREATE INDEX worker_messages_worker ON worker_messages (worker);
CREATE INDEX rigs_team ON rigs (team);
CREATE INDEX styles_shared_key ON styles (shared_key);
CREATE UNIQUE INDEX accounts_login ON accounts (login);
CREATE INDEX credit_holds_account ON credit_holds (account);
CREATE INDEX credit_entries_at ON credit_entries (at);
CREATE INDEX settled_account ON settled (account, accepted_at);
CREATE INDEX responses_expires_at ON responses (expires_at);
CREATE INDEX responses_sizes ON responses (account, id, previous, bytes);
CREATE INDEX responses_open ON responses (id, account, model) WHERE body IS NOT NULL;
CREATE INDEX replies_expires_at ON replies (expires_at);
COMMIT;
