-- key X6UcVTLyAgsUcqUGZhuP9n
-- secret 3a6a184d552ff7aba0a75e10dfd0118c2f0d39b651d24c31019c524eb02ac4fa
BEGIN TRANSACTION;
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    created_at BIGINT NOT NULL
, login TEXT);
INSERT INTO "accounts" VALUES(-1,'house','',0,NULL);
INSERT INTO "accounts" VALUES(0,'Anonymous','',0,NULL);
INSERT INTO "accounts" VALUES(1,'admin','user moderator admin worker_owner trusted customizer',1795889660840,'admin');
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
);
INSERT INTO "coordinators" VALUES(1,0);
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO "counters" VALUES('schema',30);
INSERT INTO "counters" VALUES('keys',1);
INSERT INTO "counters" VALUES('probe',0);
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
INSERT INTO "keys" VALUES(1,'6b210131ca66',1,'43c586c8caaf2ef7c6695b52a9cd547cdfadef997cd70695ebdc33be7dcb1cd9','first start','inference.submit worker.connect account.read account.manage',NULL,1795889660842,NULL,NULL,1,0);
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    account BIGINT NOT NULL,
    worker BIGINT,
    reason TEXT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);
INSERT INTO "ledger" VALUES(1,'01a2235d-83a9-7d3f-afb8-9979a9b2a457',-1,NULL,'start',-14000,1795889660840);
INSERT INTO "ledger" VALUES(2,'01a2235d-83a9-7d3f-afb8-9979a9b2a457',1,NULL,'start',14000,1795889660840);
INSERT INTO "ledger" VALUES(3,'01a2235d-84dd-7f3a-8d24-cdb1d4356059',1,NULL,'charge',-1100,1795889661163);
INSERT INTO "ledger" VALUES(4,'01a2235d-84dd-7f3a-8d24-cdb1d4356059',1,1,'reward',100,1795889661163);
INSERT INTO "ledger" VALUES(5,'01a2235d-84dd-7f3a-8d24-cdb1d4356059',-1,NULL,'fee',1000,1795889661163);
INSERT INTO "ledger" VALUES(6,'01a2235d-84dd-7f3a-8d24-cdb1d4356059',-1,NULL,'forgiven',-1100,1795889661163);
INSERT INTO "ledger" VALUES(7,'01a2235d-84dd-7f3a-8d24-cdb1d4356059',1,NULL,'forgiven',1100,1795889661163);
INSERT INTO "ledger" VALUES(8,'01a2235d-8506-788b-a7d7-19940d9a9ecf',1,NULL,'charge',-1100,1795889661275);
INSERT INTO "ledger" VALUES(9,'01a2235d-8506-788b-a7d7-19940d9a9ecf',1,1,'reward',100,1795889661275);
INSERT INTO "ledger" VALUES(10,'01a2235d-8506-788b-a7d7-19940d9a9ecf',-1,NULL,'fee',1000,1795889661275);
INSERT INTO "ledger" VALUES(11,'01a2235d-8506-788b-a7d7-19940d9a9ecf',-1,NULL,'forgiven',-1000,1795889661275);
INSERT INTO "ledger" VALUES(12,'01a2235d-8506-788b-a7d7-19940d9a9ecf',1,NULL,'forgiven',1000,1795889661275);
INSERT INTO "ledger" VALUES(13,'01a2235d-8562-712f-922d-c0b6ef5f448d',1,NULL,'charge',-1100,1795889661367);
INSERT INTO "ledger" VALUES(14,'01a2235d-8562-712f-922d-c0b6ef5f448d',1,1,'reward',100,1795889661367);
INSERT INTO "ledger" VALUES(15,'01a2235d-8562-712f-922d-c0b6ef5f448d',-1,NULL,'fee',1000,1795889661367);
INSERT INTO "ledger" VALUES(16,'01a2235d-8562-712f-922d-c0b6ef5f448d',-1,NULL,'forgiven',-1000,1795889661367);
INSERT INTO "ledger" VALUES(17,'01a2235d-8562-712f-922d-c0b6ef5f448d',1,NULL,'forgiven',1000,1795889661367);
INSERT INTO "ledger" VALUES(18,'01a2235d-85bf-7fd9-8943-04113ec14d8e',1,NULL,'charge',-1100,1795889661467);
INSERT INTO "ledger" VALUES(19,'01a2235d-85bf-7fd9-8943-04113ec14d8e',1,1,'reward',100,1795889661467);
INSERT INTO "ledger" VALUES(20,'01a2235d-85bf-7fd9-8943-04113ec14d8e',-1,NULL,'fee',1000,1795889661467);
INSERT INTO "ledger" VALUES(21,'01a2235d-85bf-7fd9-8943-04113ec14d8e',-1,NULL,'forgiven',-1000,1795889661467);
INSERT INTO "ledger" VALUES(22,'01a2235d-85bf-7fd9-8943-04113ec14d8e',1,NULL,'forgiven',1000,1795889661467);
INSERT INTO "ledger" VALUES(23,'01a2235d-8622-7eff-a055-7669eddfbe05',1,NULL,'charge',-1100,1795889661563);
INSERT INTO "ledger" VALUES(24,'01a2235d-8622-7eff-a055-7669eddfbe05',1,1,'reward',100,1795889661563);
INSERT INTO "ledger" VALUES(25,'01a2235d-8622-7eff-a055-7669eddfbe05',-1,NULL,'fee',1000,1795889661563);
INSERT INTO "ledger" VALUES(26,'01a2235d-8622-7eff-a055-7669eddfbe05',-1,NULL,'forgiven',-1000,1795889661563);
INSERT INTO "ledger" VALUES(27,'01a2235d-8622-7eff-a055-7669eddfbe05',1,NULL,'forgiven',1000,1795889661563);
INSERT INTO "ledger" VALUES(28,'01a2235d-8683-71ee-a7ce-7379e8c70da0',1,NULL,'charge',-1100,1795889661655);
INSERT INTO "ledger" VALUES(29,'01a2235d-8683-71ee-a7ce-7379e8c70da0',1,1,'reward',100,1795889661655);
INSERT INTO "ledger" VALUES(30,'01a2235d-8683-71ee-a7ce-7379e8c70da0',-1,NULL,'fee',1000,1795889661655);
INSERT INTO "ledger" VALUES(31,'01a2235d-8683-71ee-a7ce-7379e8c70da0',-1,NULL,'forgiven',-1000,1795889661655);
INSERT INTO "ledger" VALUES(32,'01a2235d-8683-71ee-a7ce-7379e8c70da0',1,NULL,'forgiven',1000,1795889661655);
INSERT INTO "ledger" VALUES(33,'01a2235d-86df-7346-9635-67f97f274d02',1,NULL,'charge',-1100,1795889661748);
INSERT INTO "ledger" VALUES(34,'01a2235d-86df-7346-9635-67f97f274d02',1,1,'reward',100,1795889661748);
INSERT INTO "ledger" VALUES(35,'01a2235d-86df-7346-9635-67f97f274d02',-1,NULL,'fee',1000,1795889661748);
INSERT INTO "ledger" VALUES(36,'01a2235d-86df-7346-9635-67f97f274d02',-1,NULL,'forgiven',-1000,1795889661748);
INSERT INTO "ledger" VALUES(37,'01a2235d-86df-7346-9635-67f97f274d02',1,NULL,'forgiven',1000,1795889661748);
INSERT INTO "ledger" VALUES(38,'01a2235d-873a-7d5e-a68e-a1b07fadbf52',1,NULL,'charge',-1100,1795889661835);
INSERT INTO "ledger" VALUES(39,'01a2235d-873a-7d5e-a68e-a1b07fadbf52',1,1,'reward',100,1795889661835);
INSERT INTO "ledger" VALUES(40,'01a2235d-873a-7d5e-a68e-a1b07fadbf52',-1,NULL,'fee',1000,1795889661835);
INSERT INTO "ledger" VALUES(41,'01a2235d-873a-7d5e-a68e-a1b07fadbf52',-1,NULL,'forgiven',-1000,1795889661835);
INSERT INTO "ledger" VALUES(42,'01a2235d-873a-7d5e-a68e-a1b07fadbf52',1,NULL,'forgiven',1000,1795889661835);
INSERT INTO "ledger" VALUES(43,'01a2235d-8793-7b27-a959-540f3663246d',1,NULL,'charge',-1100,1795889661928);
INSERT INTO "ledger" VALUES(44,'01a2235d-8793-7b27-a959-540f3663246d',1,1,'reward',100,1795889661928);
INSERT INTO "ledger" VALUES(45,'01a2235d-8793-7b27-a959-540f3663246d',-1,NULL,'fee',1000,1795889661928);
INSERT INTO "ledger" VALUES(46,'01a2235d-8793-7b27-a959-540f3663246d',-1,NULL,'forgiven',-1000,1795889661928);
INSERT INTO "ledger" VALUES(47,'01a2235d-8793-7b27-a959-540f3663246d',1,NULL,'forgiven',1000,1795889661928);
INSERT INTO "ledger" VALUES(48,'01a2235d-87ef-7958-a8ca-3dfc965896f5',1,NULL,'charge',-1100,1795889662019);
INSERT INTO "ledger" VALUES(49,'01a2235d-87ef-7958-a8ca-3dfc965896f5',1,1,'reward',100,1795889662019);
INSERT INTO "ledger" VALUES(50,'01a2235d-87ef-7958-a8ca-3dfc965896f5',-1,NULL,'fee',1000,1795889662019);
INSERT INTO "ledger" VALUES(51,'01a2235d-87ef-7958-a8ca-3dfc965896f5',-1,NULL,'forgiven',-1000,1795889662019);
INSERT INTO "ledger" VALUES(52,'01a2235d-87ef-7958-a8ca-3dfc965896f5',1,NULL,'forgiven',1000,1795889662019);
INSERT INTO "ledger" VALUES(53,'01a2235d-888a-78ea-97cb-7265fc6c4797',1,NULL,'charge',-1100,1795889662172);
INSERT INTO "ledger" VALUES(54,'01a2235d-888a-78ea-97cb-7265fc6c4797',1,1,'reward',100,1795889662172);
INSERT INTO "ledger" VALUES(55,'01a2235d-888a-78ea-97cb-7265fc6c4797',-1,NULL,'fee',1000,1795889662172);
INSERT INTO "ledger" VALUES(56,'01a2235d-888a-78ea-97cb-7265fc6c4797',-1,NULL,'forgiven',-1000,1795889662172);
INSERT INTO "ledger" VALUES(57,'01a2235d-888a-78ea-97cb-7265fc6c4797',1,NULL,'forgiven',1000,1795889662172);
INSERT INTO "ledger" VALUES(58,'01a2235d-890e-7d9c-91e7-ef16505cf21c',1,NULL,'charge',-4121,1795889662537);
INSERT INTO "ledger" VALUES(59,'01a2235d-890e-7d9c-91e7-ef16505cf21c',1,1,'reward',3121,1795889662537);
INSERT INTO "ledger" VALUES(60,'01a2235d-890e-7d9c-91e7-ef16505cf21c',-1,NULL,'fee',1000,1795889662537);
INSERT INTO "ledger" VALUES(61,'01a2235d-890e-7d9c-91e7-ef16505cf21c',-1,NULL,'forgiven',-4021,1795889662537);
INSERT INTO "ledger" VALUES(62,'01a2235d-890e-7d9c-91e7-ef16505cf21c',1,NULL,'forgiven',4021,1795889662537);
INSERT INTO "ledger" VALUES(63,'01a2235d-8a4f-7950-bcac-91f9476d8f86',1,NULL,'charge',-1133,1795889662836);
INSERT INTO "ledger" VALUES(64,'01a2235d-8a4f-7950-bcac-91f9476d8f86',1,1,'reward',133,1795889662836);
INSERT INTO "ledger" VALUES(65,'01a2235d-8a4f-7950-bcac-91f9476d8f86',-1,NULL,'fee',1000,1795889662836);
INSERT INTO "ledger" VALUES(66,'01a2235d-8b7a-75e9-8028-49cdd780f767',1,NULL,'charge',-1666,1795889662938);
INSERT INTO "ledger" VALUES(67,'01a2235d-8b7a-75e9-8028-49cdd780f767',1,1,'reward',666,1795889662938);
INSERT INTO "ledger" VALUES(68,'01a2235d-8b7a-75e9-8028-49cdd780f767',-1,NULL,'fee',1000,1795889662938);
INSERT INTO "ledger" VALUES(69,'01a2235d-8bdf-7ada-a92f-f9c58e364f73',1,NULL,'charge',-1100,1795889663075);
INSERT INTO "ledger" VALUES(70,'01a2235d-8bdf-7ada-a92f-f9c58e364f73',1,1,'reward',100,1795889663075);
INSERT INTO "ledger" VALUES(71,'01a2235d-8bdf-7ada-a92f-f9c58e364f73',-1,NULL,'fee',1000,1795889663075);
INSERT INTO "ledger" VALUES(72,'01a2235d-8c6c-7443-b299-55aa81da7ab2',1,NULL,'charge',-1100,1795889663163);
INSERT INTO "ledger" VALUES(73,'01a2235d-8c6c-7443-b299-55aa81da7ab2',1,1,'reward',100,1795889663163);
INSERT INTO "ledger" VALUES(74,'01a2235d-8c6c-7443-b299-55aa81da7ab2',-1,NULL,'fee',1000,1795889663163);
INSERT INTO "ledger" VALUES(75,'01a2235d-8c6c-7443-b299-55aa81da7ab2',-1,NULL,'forgiven',-979,1795889663163);
INSERT INTO "ledger" VALUES(76,'01a2235d-8c6c-7443-b299-55aa81da7ab2',1,NULL,'forgiven',979,1795889663163);
INSERT INTO "ledger" VALUES(77,'01a2235d-8cee-7af2-8b00-1efe7801b966',1,NULL,'charge',-1100,1795889663272);
INSERT INTO "ledger" VALUES(78,'01a2235d-8cee-7af2-8b00-1efe7801b966',1,1,'reward',100,1795889663272);
INSERT INTO "ledger" VALUES(79,'01a2235d-8cee-7af2-8b00-1efe7801b966',-1,NULL,'fee',1000,1795889663272);
INSERT INTO "ledger" VALUES(80,'01a2235d-8cee-7af2-8b00-1efe7801b966',-1,NULL,'forgiven',-1000,1795889663272);
INSERT INTO "ledger" VALUES(81,'01a2235d-8cee-7af2-8b00-1efe7801b966',1,NULL,'forgiven',1000,1795889663272);
INSERT INTO "ledger" VALUES(82,'01a2235d-8d58-7178-b9f3-319ad469d706',1,NULL,'charge',-1100,1795889663383);
INSERT INTO "ledger" VALUES(83,'01a2235d-8d58-7178-b9f3-319ad469d706',1,1,'reward',100,1795889663383);
INSERT INTO "ledger" VALUES(84,'01a2235d-8d58-7178-b9f3-319ad469d706',-1,NULL,'fee',1000,1795889663383);
INSERT INTO "ledger" VALUES(85,'01a2235d-8d58-7178-b9f3-319ad469d706',-1,NULL,'forgiven',-1000,1795889663383);
INSERT INTO "ledger" VALUES(86,'01a2235d-8d58-7178-b9f3-319ad469d706',1,NULL,'forgiven',1000,1795889663383);
INSERT INTO "ledger" VALUES(87,'01a2235d-8d9f-7296-881d-233c5a6e745c',-1,NULL,'request',1000,1795889663391);
INSERT INTO "ledger" VALUES(88,'01a2235d-8d9f-7296-881d-233c5a6e745c',1,NULL,'request',-1000,1795889663391);
INSERT INTO "ledger" VALUES(89,'01a2235d-8d9f-7296-881d-233c5a6e745c',-1,NULL,'forgiven',-900,1795889663391);
INSERT INTO "ledger" VALUES(90,'01a2235d-8d9f-7296-881d-233c5a6e745c',1,NULL,'forgiven',900,1795889663391);
INSERT INTO "ledger" VALUES(91,'01a2235d-8d9e-747d-b196-de7f70e04626',1,NULL,'charge',-2141,1795889663549);
INSERT INTO "ledger" VALUES(92,'01a2235d-8d9e-747d-b196-de7f70e04626',1,1,'reward',1141,1795889663549);
INSERT INTO "ledger" VALUES(93,'01a2235d-8d9e-747d-b196-de7f70e04626',-1,NULL,'fee',1000,1795889663549);
INSERT INTO "ledger" VALUES(94,'01a2235d-8d9e-747d-b196-de7f70e04626',-1,NULL,'forgiven',-2141,1795889663549);
INSERT INTO "ledger" VALUES(95,'01a2235d-8d9e-747d-b196-de7f70e04626',1,NULL,'forgiven',2141,1795889663549);
INSERT INTO "ledger" VALUES(96,'01a2235d-8e78-7158-ab08-9a980136524e',-1,NULL,'request',1000,1795889663608);
INSERT INTO "ledger" VALUES(97,'01a2235d-8e78-7158-ab08-9a980136524e',1,NULL,'request',-1000,1795889663608);
INSERT INTO "ledger" VALUES(98,'01a2235d-8e77-702a-8bb7-7932f9c92bf3',1,NULL,'charge',-1100,1795889663655);
INSERT INTO "ledger" VALUES(99,'01a2235d-8e77-702a-8bb7-7932f9c92bf3',1,1,'reward',100,1795889663655);
INSERT INTO "ledger" VALUES(100,'01a2235d-8e77-702a-8bb7-7932f9c92bf3',-1,NULL,'fee',1000,1795889663655);
INSERT INTO "ledger" VALUES(101,'01a2235d-8e77-702a-8bb7-7932f9c92bf3',-1,NULL,'forgiven',-959,1795889663655);
INSERT INTO "ledger" VALUES(102,'01a2235d-8e77-702a-8bb7-7932f9c92bf3',1,NULL,'forgiven',959,1795889663655);
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
INSERT INTO "made" VALUES(1,'text','demo-text',1795889661000,1,12,12,14,100,1,0,1,14,14);
INSERT INTO "made" VALUES(2,'text','demo-text',1795889661000,1,12,12,85,100,1,0,1,41,85);
INSERT INTO "made" VALUES(3,'text','demo-text',1795889661000,1,12,12,85,100,1,0,1,42,85);
INSERT INTO "made" VALUES(4,'text','demo-text',1795889661000,1,12,12,92,100,1,0,1,51,92);
INSERT INTO "made" VALUES(5,'text','demo-text',1795889661000,1,60,21,89,100,1,0,1,89,89);
INSERT INTO "made" VALUES(6,'text','demo-text',1795889661000,1,12,12,84,100,1,0,1,44,84);
INSERT INTO "made" VALUES(7,'text','demo-text',1795889661000,1,16,16,85,100,1,0,1,44,85);
INSERT INTO "made" VALUES(8,'text','demo-text',1795889661000,1,16,16,81,100,1,0,1,40,81);
INSERT INTO "made" VALUES(9,'text','demo-text',1795889661000,1,12,12,85,100,1,0,1,85,85);
INSERT INTO "made" VALUES(10,'text','demo-text',1795889662000,1,12,12,84,100,1,0,1,84,84);
INSERT INTO "made" VALUES(11,'text','demo-text',1795889662000,0,0,0,0,0,1,0,1,57,57);
INSERT INTO "made" VALUES(12,'text','demo-text',1795889662000,1,12,12,82,100,1,0,1,41,82);
INSERT INTO "made" VALUES(13,'text','demo-text',1795889662000,0,0,0,0,0,1,0,1,38,38);
INSERT INTO "made" VALUES(14,'image','demo-image',1795889662000,1,1966080,1966080,315,3121,1,0,1,315,315);
INSERT INTO "made" VALUES(15,'video','demo-video',1795889662000,1,69632,69632,293,133,1,0,1,293,293);
INSERT INTO "made" VALUES(16,'audio','demo-music',1795889662000,1,2,2,96,666,1,0,1,96,96);
INSERT INTO "made" VALUES(17,'text','demo-speech',1795889663000,0,0,0,0,0,1,0,1,131,131);
INSERT INTO "made" VALUES(18,'text','demo-speech',1795889663000,0,0,0,0,0,1,0,1,79,79);
INSERT INTO "made" VALUES(19,'text','demo-hearing',1795889663000,0,0,0,0,0,1,0,1,20,57);
INSERT INTO "made" VALUES(20,'text','demo-hearing',1795889663000,0,0,0,0,0,1,0,1,17,63);
INSERT INTO "made" VALUES(21,'image','demo-image',1795889663000,1,131072,131072,159,1141,1,0,1,159,159);
INSERT INTO "made" VALUES(22,'text','demo-text',1795889663000,1,16,16,48,100,1,0,1,5,48);
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
INSERT INTO "postings" VALUES('01a2235d-83a9-7d3f-afb8-9979a9b2a457','start','',NULL,'start : -1 -14000, 1 14000',1795889660840);
INSERT INTO "postings" VALUES('01a2235d-8d9f-7296-881d-233c5a6e745c','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1795889663391);
INSERT INTO "postings" VALUES('01a2235d-8e78-7158-ab08-9a980136524e','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1795889663608);
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
INSERT INTO "records" VALUES(1,1000,2097,165,2097,165,2,18,0,2,16,0);
CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    account BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    accepted_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    cancelled BIGINT NOT NULL
, fee BIGINT NOT NULL DEFAULT 0, owner BIGINT NOT NULL DEFAULT 0);
INSERT INTO "requests" VALUES('01a2235d-8d9e-7c60-9ed9-73d92c563928',1,'image','{"request":{"prompt":"a red circle","params":{"n":1,"image_is_control":false,"return_control_map":false,"sampler_name":"k_euler_a","cfg_scale":5.0,"height":256,"width":256,"karras":true,"tiling":false,"hires_fix":false,"transparent":false,"steps":2,"seed":"1"},"nsfw":true,"trusted_workers":false,"validated_backends":false,"slow_workers":true,"extra_slow_workers":false,"censor_nsfw":true,"worker_blacklist":false,"models":["demo-image"],"source_processing":"img2img","r2":true,"shared":false,"replacement_filter":true,"dry_run":false,"disable_batching":false,"allow_downgrade":false},"jobs":["01a2235d-8d9e-747d-b196-de7f70e04626"],"seed":3066848934,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1795889663391,1795890263390,0,1000,1);
INSERT INTO "requests" VALUES('01a2235d-8e77-751e-b4d5-9c35c456d062',1,'text','{"request":{"prompt":"Muster is","params":{"max_context_length":256,"max_length":16,"dynatemp_exponent":1.0},"trusted_workers":false,"validated_backends":false,"slow_workers":true,"worker_blacklist":false,"models":["demo-text"],"dry_run":false,"disable_batching":false,"allow_downgrade":false,"extra_slow_workers":false},"jobs":["01a2235d-8e77-702a-8bb7-7932f9c92bf3"],"seed":4057723083,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1795889663608,1795890863607,0,1000,1);
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
INSERT INTO "results" VALUES('01a2235d-8d9e-747d-b196-de7f70e04626','01a2235d-8d9e-7c60-9ed9-73d92c563928',1,'demo-image','delivered','stop','{"index":0,"seed":1,"key":"results/01a2235d-8d9e-747d-b196-de7f70e04626-1.webp","content_type":"image/webp","sha256":"3070a5771a9bd0aa556ffa7fc3ee986e5f0686a6e60301beac9571e105566259","size":[256,256]}',2141,2141);
INSERT INTO "results" VALUES('01a2235d-8e77-702a-8bb7-7932f9c92bf3','01a2235d-8e77-751e-b4d5-9c35c456d062',1,'demo-text','delivered','length','ensedTensedTensors and GGUF dG',1100,959);
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
INSERT INTO "rigs" VALUES(1,'','','',1,0,'[]','',0,0,0,1795889661043,'',0,'',0,NULL,0,22,0,6661,0,447,390020);
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
INSERT INTO "settings" VALUES('secret_check','0e714e7692f5c98f37ce4f683de39e89f41726fb03fa0c26cae92dd30efb4006');
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
INSERT INTO "settled" VALUES('01a2235d-84dd-7f3a-8d24-cdb1d4356059','01a2235d-84db-7fbe-a8c2-5a6b054a7f8e',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889661149,0,14,14,NULL);
INSERT INTO "settled" VALUES('01a2235d-8506-788b-a7d7-19940d9a9ecf','01a2235d-8506-72c2-92d7-ffbec0a62422',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889661190,0,41,85,NULL);
INSERT INTO "settled" VALUES('01a2235d-8562-712f-922d-c0b6ef5f448d','01a2235d-8562-7a0f-a026-91cd9e7a8826',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889661282,0,42,85,NULL);
INSERT INTO "settled" VALUES('01a2235d-85bf-7fd9-8943-04113ec14d8e','01a2235d-85bf-7c6e-bde5-7532de66ae70',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889661375,0,51,92,NULL);
INSERT INTO "settled" VALUES('01a2235d-8622-7eff-a055-7669eddfbe05','01a2235d-8622-7d34-a6e5-63baab0d4218',1,1,'text','demo-text','delivered','tool_calls',1,22,21,21,100,1100,1795889661474,0,89,89,NULL);
INSERT INTO "settled" VALUES('01a2235d-8683-71ee-a7ce-7379e8c70da0','01a2235d-8683-78a9-b2f5-f6c01b376d51',1,1,'text','demo-text','delivered','length',1,2,12,12,100,1100,1795889661571,0,44,84,NULL);
INSERT INTO "settled" VALUES('01a2235d-86df-7346-9635-67f97f274d02','01a2235d-86de-7586-85fd-8e990614ddd6',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1795889661663,0,44,85,NULL);
INSERT INTO "settled" VALUES('01a2235d-873a-7d5e-a68e-a1b07fadbf52','01a2235d-873a-7956-9224-cdd22d308459',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1795889661754,0,40,81,NULL);
INSERT INTO "settled" VALUES('01a2235d-8793-7b27-a959-540f3663246d','01a2235d-8792-7776-bdf6-3bdcb515cf4f',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889661843,0,85,85,NULL);
INSERT INTO "settled" VALUES('01a2235d-87ef-7958-a8ca-3dfc965896f5','01a2235d-87ef-798b-aff5-cbeed16d6b92',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889661935,0,84,84,NULL);
INSERT INTO "settled" VALUES('01a2235d-884a-73d8-a9af-fedfba41869c','01a2235d-884a-724a-a0c6-fb8b30323fbb',1,1,'text','demo-text','delivered','stop',1,8,0,0,0,0,1795889662026,0,57,57,NULL);
INSERT INTO "settled" VALUES('01a2235d-888a-78ea-97cb-7265fc6c4797','01a2235d-8889-792b-979c-257846b3cd73',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889662090,0,41,82,NULL);
INSERT INTO "settled" VALUES('01a2235d-88e3-7d0d-a293-2919ff79c076','01a2235d-88e2-7b54-b4cb-c6dd235b318f',1,1,'text','demo-text','delivered','stop',1,4,0,0,0,0,1795889662179,0,38,38,NULL);
INSERT INTO "settled" VALUES('01a2235d-890e-7d9c-91e7-ef16505cf21c','01a2235d-890e-7491-b671-b232545b25db',1,1,'image','demo-image','delivered','stop',1,0,0,0,3121,4121,1795889662222,0,315,315,NULL);
INSERT INTO "settled" VALUES('01a2235d-8a4f-7950-bcac-91f9476d8f86','01a2235d-8a4f-7dbf-aab9-6e45618ad541',1,1,'video','demo-video','delivered','stop',1,0,0,0,133,1133,1795889662543,0,293,293,NULL);
INSERT INTO "settled" VALUES('01a2235d-8b7a-75e9-8028-49cdd780f767','01a2235d-8b79-7d90-9ed7-8b84f3ec0b3b',1,1,'audio','demo-music','delivered','stop',1,0,0,0,666,1666,1795889662842,0,96,96,NULL);
INSERT INTO "settled" VALUES('01a2235d-8bdf-7ada-a92f-f9c58e364f73','01a2235d-8bdf-7e00-bbc8-db1064cac6ee',1,1,'text','demo-speech','delivered','stop',1,32,0,0,100,1100,1795889662944,0,131,131,NULL);
INSERT INTO "settled" VALUES('01a2235d-8c6c-7443-b299-55aa81da7ab2','01a2235d-8c6b-7464-b13d-4518df852090',1,1,'text','demo-speech','delivered','stop',1,32,0,0,100,1100,1795889663084,0,79,79,NULL);
INSERT INTO "settled" VALUES('01a2235d-8cee-7af2-8b00-1efe7801b966','01a2235d-8cc3-7ff3-801a-39345900d9b2',1,1,'text','demo-hearing','delivered','stop',1,108,0,0,100,1100,1795889663215,0,20,57,NULL);
INSERT INTO "settled" VALUES('01a2235d-8d58-7178-b9f3-319ad469d706','01a2235d-8d2e-7df0-b7cf-ca59e1d8063f',1,1,'text','demo-hearing','delivered','stop',1,108,0,0,100,1100,1795889663320,0,17,63,NULL);
INSERT INTO "settled" VALUES('01a2235d-8d9e-747d-b196-de7f70e04626','01a2235d-8d9e-7c60-9ed9-73d92c563928',1,1,'image','demo-image','delivered','stop',1,0,0,0,1141,2141,1795889663390,0,159,159,NULL);
INSERT INTO "settled" VALUES('01a2235d-8e77-702a-8bb7-7932f9c92bf3','01a2235d-8e77-751e-b4d5-9c35c456d062',1,1,'text','demo-text','delivered','length',1,2,16,16,100,1100,1795889663607,0,5,48,NULL);
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
INSERT INTO "workers" VALUES(1,'7321a5cf-b75f-41ff-930e-7cddcd630ae9','rig',1,0,1795889661043);
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
COMMIT;
