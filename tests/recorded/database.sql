-- key AKxkTI8U9S0CdAx_93BbXS
-- secret 03c8accf62bd9f3d365a40560097078051a72775389172145701efa6670c63ae
BEGIN TRANSACTION;
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    created_at BIGINT NOT NULL
, login TEXT);
INSERT INTO "accounts" VALUES(-1,'house','',0,NULL);
INSERT INTO "accounts" VALUES(0,'Anonymous','',0,NULL);
INSERT INTO "accounts" VALUES(1,'admin','user moderator admin worker_owner trusted customizer',1796059463056,'admin');
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
INSERT INTO "counters" VALUES('schema',33);
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
INSERT INTO "keys" VALUES(1,'4d78e223222c',1,'219ccc48d78c440b64730cd8fee5942ffcc2e991e81fad988ede7f8134b80385','first start','inference.submit worker.connect account.read account.manage',NULL,1796059463059,NULL,NULL,1,0);
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    account BIGINT NOT NULL,
    worker BIGINT,
    reason TEXT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);
INSERT INTO "ledger" VALUES(1,'01a22d7c-7d90-7bbf-adda-87c9fa937b22',-1,NULL,'start',-14000,1796059463056);
INSERT INTO "ledger" VALUES(2,'01a22d7c-7d90-7bbf-adda-87c9fa937b22',1,NULL,'start',14000,1796059463056);
INSERT INTO "ledger" VALUES(3,'01a22d7c-7fe7-7e72-b736-269abe9562bb',1,NULL,'charge',-1100,1796059463677);
INSERT INTO "ledger" VALUES(4,'01a22d7c-7fe7-7e72-b736-269abe9562bb',1,1,'reward',100,1796059463677);
INSERT INTO "ledger" VALUES(5,'01a22d7c-7fe7-7e72-b736-269abe9562bb',-1,NULL,'fee',1000,1796059463677);
INSERT INTO "ledger" VALUES(6,'01a22d7c-7fe7-7e72-b736-269abe9562bb',-1,NULL,'forgiven',-1100,1796059463677);
INSERT INTO "ledger" VALUES(7,'01a22d7c-7fe7-7e72-b736-269abe9562bb',1,NULL,'forgiven',1100,1796059463677);
INSERT INTO "ledger" VALUES(8,'01a22d7c-8026-75f6-a185-0a1b8f627d83',1,NULL,'charge',-1100,1796059463803);
INSERT INTO "ledger" VALUES(9,'01a22d7c-8026-75f6-a185-0a1b8f627d83',1,1,'reward',100,1796059463803);
INSERT INTO "ledger" VALUES(10,'01a22d7c-8026-75f6-a185-0a1b8f627d83',-1,NULL,'fee',1000,1796059463803);
INSERT INTO "ledger" VALUES(11,'01a22d7c-8026-75f6-a185-0a1b8f627d83',-1,NULL,'forgiven',-1000,1796059463803);
INSERT INTO "ledger" VALUES(12,'01a22d7c-8026-75f6-a185-0a1b8f627d83',1,NULL,'forgiven',1000,1796059463803);
INSERT INTO "ledger" VALUES(13,'01a22d7c-8083-71a5-933e-5f219e1e27e5',1,NULL,'charge',-1100,1796059463899);
INSERT INTO "ledger" VALUES(14,'01a22d7c-8083-71a5-933e-5f219e1e27e5',1,1,'reward',100,1796059463899);
INSERT INTO "ledger" VALUES(15,'01a22d7c-8083-71a5-933e-5f219e1e27e5',-1,NULL,'fee',1000,1796059463899);
INSERT INTO "ledger" VALUES(16,'01a22d7c-8083-71a5-933e-5f219e1e27e5',-1,NULL,'forgiven',-1000,1796059463899);
INSERT INTO "ledger" VALUES(17,'01a22d7c-8083-71a5-933e-5f219e1e27e5',1,NULL,'forgiven',1000,1796059463899);
INSERT INTO "ledger" VALUES(18,'01a22d7c-80e4-7b91-8656-f5c405658629',1,NULL,'charge',-1100,1796059464015);
INSERT INTO "ledger" VALUES(19,'01a22d7c-80e4-7b91-8656-f5c405658629',1,1,'reward',100,1796059464015);
INSERT INTO "ledger" VALUES(20,'01a22d7c-80e4-7b91-8656-f5c405658629',-1,NULL,'fee',1000,1796059464015);
INSERT INTO "ledger" VALUES(21,'01a22d7c-80e4-7b91-8656-f5c405658629',-1,NULL,'forgiven',-1000,1796059464015);
INSERT INTO "ledger" VALUES(22,'01a22d7c-80e4-7b91-8656-f5c405658629',1,NULL,'forgiven',1000,1796059464015);
INSERT INTO "ledger" VALUES(23,'01a22d7c-8158-7a97-b396-083443f66655',1,NULL,'charge',-1100,1796059464123);
INSERT INTO "ledger" VALUES(24,'01a22d7c-8158-7a97-b396-083443f66655',1,1,'reward',100,1796059464123);
INSERT INTO "ledger" VALUES(25,'01a22d7c-8158-7a97-b396-083443f66655',-1,NULL,'fee',1000,1796059464123);
INSERT INTO "ledger" VALUES(26,'01a22d7c-8158-7a97-b396-083443f66655',-1,NULL,'forgiven',-1000,1796059464123);
INSERT INTO "ledger" VALUES(27,'01a22d7c-8158-7a97-b396-083443f66655',1,NULL,'forgiven',1000,1796059464123);
INSERT INTO "ledger" VALUES(28,'01a22d7c-81c3-711f-b1d5-3ca80285686e',1,NULL,'charge',-1100,1796059464219);
INSERT INTO "ledger" VALUES(29,'01a22d7c-81c3-711f-b1d5-3ca80285686e',1,1,'reward',100,1796059464219);
INSERT INTO "ledger" VALUES(30,'01a22d7c-81c3-711f-b1d5-3ca80285686e',-1,NULL,'fee',1000,1796059464219);
INSERT INTO "ledger" VALUES(31,'01a22d7c-81c3-711f-b1d5-3ca80285686e',-1,NULL,'forgiven',-1000,1796059464219);
INSERT INTO "ledger" VALUES(32,'01a22d7c-81c3-711f-b1d5-3ca80285686e',1,NULL,'forgiven',1000,1796059464219);
INSERT INTO "ledger" VALUES(33,'01a22d7c-8224-702d-8968-771977082e9f',1,NULL,'charge',-1100,1796059464315);
INSERT INTO "ledger" VALUES(34,'01a22d7c-8224-702d-8968-771977082e9f',1,1,'reward',100,1796059464315);
INSERT INTO "ledger" VALUES(35,'01a22d7c-8224-702d-8968-771977082e9f',-1,NULL,'fee',1000,1796059464315);
INSERT INTO "ledger" VALUES(36,'01a22d7c-8224-702d-8968-771977082e9f',-1,NULL,'forgiven',-1000,1796059464315);
INSERT INTO "ledger" VALUES(37,'01a22d7c-8224-702d-8968-771977082e9f',1,NULL,'forgiven',1000,1796059464315);
INSERT INTO "ledger" VALUES(38,'01a22d7c-8285-7125-b89f-34c45b298fff',1,NULL,'charge',-1100,1796059464407);
INSERT INTO "ledger" VALUES(39,'01a22d7c-8285-7125-b89f-34c45b298fff',1,1,'reward',100,1796059464407);
INSERT INTO "ledger" VALUES(40,'01a22d7c-8285-7125-b89f-34c45b298fff',-1,NULL,'fee',1000,1796059464407);
INSERT INTO "ledger" VALUES(41,'01a22d7c-8285-7125-b89f-34c45b298fff',-1,NULL,'forgiven',-1000,1796059464407);
INSERT INTO "ledger" VALUES(42,'01a22d7c-8285-7125-b89f-34c45b298fff',1,NULL,'forgiven',1000,1796059464407);
INSERT INTO "ledger" VALUES(43,'01a22d7c-82e0-7e15-80e5-8dc9853d8383',1,NULL,'charge',-1100,1796059464508);
INSERT INTO "ledger" VALUES(44,'01a22d7c-82e0-7e15-80e5-8dc9853d8383',1,1,'reward',100,1796059464508);
INSERT INTO "ledger" VALUES(45,'01a22d7c-82e0-7e15-80e5-8dc9853d8383',-1,NULL,'fee',1000,1796059464508);
INSERT INTO "ledger" VALUES(46,'01a22d7c-82e0-7e15-80e5-8dc9853d8383',-1,NULL,'forgiven',-1000,1796059464508);
INSERT INTO "ledger" VALUES(47,'01a22d7c-82e0-7e15-80e5-8dc9853d8383',1,NULL,'forgiven',1000,1796059464508);
INSERT INTO "ledger" VALUES(48,'01a22d7c-8344-7746-a45e-e1b5c53007d1',1,NULL,'charge',-1100,1796059464603);
INSERT INTO "ledger" VALUES(49,'01a22d7c-8344-7746-a45e-e1b5c53007d1',1,1,'reward',100,1796059464603);
INSERT INTO "ledger" VALUES(50,'01a22d7c-8344-7746-a45e-e1b5c53007d1',-1,NULL,'fee',1000,1796059464603);
INSERT INTO "ledger" VALUES(51,'01a22d7c-8344-7746-a45e-e1b5c53007d1',-1,NULL,'forgiven',-1000,1796059464603);
INSERT INTO "ledger" VALUES(52,'01a22d7c-8344-7746-a45e-e1b5c53007d1',1,NULL,'forgiven',1000,1796059464603);
INSERT INTO "ledger" VALUES(53,'01a22d7c-83d4-7268-b889-f37b5e46acf3',1,NULL,'charge',-1100,1796059464747);
INSERT INTO "ledger" VALUES(54,'01a22d7c-83d4-7268-b889-f37b5e46acf3',1,1,'reward',100,1796059464747);
INSERT INTO "ledger" VALUES(55,'01a22d7c-83d4-7268-b889-f37b5e46acf3',-1,NULL,'fee',1000,1796059464747);
INSERT INTO "ledger" VALUES(56,'01a22d7c-83d4-7268-b889-f37b5e46acf3',-1,NULL,'forgiven',-1000,1796059464747);
INSERT INTO "ledger" VALUES(57,'01a22d7c-83d4-7268-b889-f37b5e46acf3',1,NULL,'forgiven',1000,1796059464747);
INSERT INTO "ledger" VALUES(58,'01a22d7c-8465-7f66-a320-ceffa8f7682f',1,NULL,'charge',-4121,1796059465398);
INSERT INTO "ledger" VALUES(59,'01a22d7c-8465-7f66-a320-ceffa8f7682f',1,1,'reward',3121,1796059465398);
INSERT INTO "ledger" VALUES(60,'01a22d7c-8465-7f66-a320-ceffa8f7682f',-1,NULL,'fee',1000,1796059465398);
INSERT INTO "ledger" VALUES(61,'01a22d7c-8465-7f66-a320-ceffa8f7682f',-1,NULL,'forgiven',-4021,1796059465398);
INSERT INTO "ledger" VALUES(62,'01a22d7c-8465-7f66-a320-ceffa8f7682f',1,NULL,'forgiven',4021,1796059465398);
INSERT INTO "ledger" VALUES(63,'01a22d7c-86bd-7b53-a1fb-d1922d3b0827',1,NULL,'charge',-1133,1796059465804);
INSERT INTO "ledger" VALUES(64,'01a22d7c-86bd-7b53-a1fb-d1922d3b0827',1,1,'reward',133,1796059465804);
INSERT INTO "ledger" VALUES(65,'01a22d7c-86bd-7b53-a1fb-d1922d3b0827',-1,NULL,'fee',1000,1796059465804);
INSERT INTO "ledger" VALUES(66,'01a22d7c-8854-7156-96d7-39e4e4235ec7',1,NULL,'charge',-1666,1796059465938);
INSERT INTO "ledger" VALUES(67,'01a22d7c-8854-7156-96d7-39e4e4235ec7',1,1,'reward',666,1796059465938);
INSERT INTO "ledger" VALUES(68,'01a22d7c-8854-7156-96d7-39e4e4235ec7',-1,NULL,'fee',1000,1796059465938);
INSERT INTO "ledger" VALUES(69,'01a22d7c-88d9-7788-a742-7e213ad4fcaa',1,NULL,'charge',-1100,1796059466151);
INSERT INTO "ledger" VALUES(70,'01a22d7c-88d9-7788-a742-7e213ad4fcaa',1,1,'reward',100,1796059466151);
INSERT INTO "ledger" VALUES(71,'01a22d7c-88d9-7788-a742-7e213ad4fcaa',-1,NULL,'fee',1000,1796059466151);
INSERT INTO "ledger" VALUES(72,'01a22d7c-89c0-719b-82cd-990130c47425',1,NULL,'charge',-1100,1796059466330);
INSERT INTO "ledger" VALUES(73,'01a22d7c-89c0-719b-82cd-990130c47425',1,1,'reward',100,1796059466330);
INSERT INTO "ledger" VALUES(74,'01a22d7c-89c0-719b-82cd-990130c47425',-1,NULL,'fee',1000,1796059466330);
INSERT INTO "ledger" VALUES(75,'01a22d7c-89c0-719b-82cd-990130c47425',-1,NULL,'forgiven',-979,1796059466330);
INSERT INTO "ledger" VALUES(76,'01a22d7c-89c0-719b-82cd-990130c47425',1,NULL,'forgiven',979,1796059466330);
INSERT INTO "ledger" VALUES(77,'01a22d7c-8a67-78de-9261-7e90a0e671b6',1,NULL,'charge',-1100,1796059467153);
INSERT INTO "ledger" VALUES(78,'01a22d7c-8a67-78de-9261-7e90a0e671b6',1,1,'reward',100,1796059467153);
INSERT INTO "ledger" VALUES(79,'01a22d7c-8a67-78de-9261-7e90a0e671b6',-1,NULL,'fee',1000,1796059467153);
INSERT INTO "ledger" VALUES(80,'01a22d7c-8a67-78de-9261-7e90a0e671b6',-1,NULL,'forgiven',-1000,1796059467153);
INSERT INTO "ledger" VALUES(81,'01a22d7c-8a67-78de-9261-7e90a0e671b6',1,NULL,'forgiven',1000,1796059467153);
INSERT INTO "ledger" VALUES(82,'01a22d7c-8dde-7acd-83e0-ba95d303dfd7',1,NULL,'charge',-1100,1796059468206);
INSERT INTO "ledger" VALUES(83,'01a22d7c-8dde-7acd-83e0-ba95d303dfd7',1,1,'reward',100,1796059468206);
INSERT INTO "ledger" VALUES(84,'01a22d7c-8dde-7acd-83e0-ba95d303dfd7',-1,NULL,'fee',1000,1796059468206);
INSERT INTO "ledger" VALUES(85,'01a22d7c-8dde-7acd-83e0-ba95d303dfd7',-1,NULL,'forgiven',-1000,1796059468206);
INSERT INTO "ledger" VALUES(86,'01a22d7c-8dde-7acd-83e0-ba95d303dfd7',1,NULL,'forgiven',1000,1796059468206);
INSERT INTO "ledger" VALUES(87,'01a22d7c-923b-72c3-909d-fa267d72f68f',1,NULL,'charge',-1100,1796059468389);
INSERT INTO "ledger" VALUES(88,'01a22d7c-923b-72c3-909d-fa267d72f68f',1,1,'reward',100,1796059468389);
INSERT INTO "ledger" VALUES(89,'01a22d7c-923b-72c3-909d-fa267d72f68f',-1,NULL,'fee',1000,1796059468389);
INSERT INTO "ledger" VALUES(90,'01a22d7c-923b-72c3-909d-fa267d72f68f',-1,NULL,'forgiven',-1000,1796059468389);
INSERT INTO "ledger" VALUES(91,'01a22d7c-923b-72c3-909d-fa267d72f68f',1,NULL,'forgiven',1000,1796059468389);
INSERT INTO "ledger" VALUES(92,'01a22d7c-92c7-7918-b03d-93bc48772557',1,NULL,'charge',-1100,1796059468555);
INSERT INTO "ledger" VALUES(93,'01a22d7c-92c7-7918-b03d-93bc48772557',1,1,'reward',100,1796059468555);
INSERT INTO "ledger" VALUES(94,'01a22d7c-92c7-7918-b03d-93bc48772557',-1,NULL,'fee',1000,1796059468555);
INSERT INTO "ledger" VALUES(95,'01a22d7c-92c7-7918-b03d-93bc48772557',-1,NULL,'forgiven',-1000,1796059468555);
INSERT INTO "ledger" VALUES(96,'01a22d7c-92c7-7918-b03d-93bc48772557',1,NULL,'forgiven',1000,1796059468555);
INSERT INTO "ledger" VALUES(97,'01a22d7c-9316-72df-bb32-1e9a7f964427',-1,NULL,'request',1000,1796059468566);
INSERT INTO "ledger" VALUES(98,'01a22d7c-9316-72df-bb32-1e9a7f964427',1,NULL,'request',-1000,1796059468566);
INSERT INTO "ledger" VALUES(99,'01a22d7c-9316-72df-bb32-1e9a7f964427',-1,NULL,'forgiven',-900,1796059468566);
INSERT INTO "ledger" VALUES(100,'01a22d7c-9316-72df-bb32-1e9a7f964427',1,NULL,'forgiven',900,1796059468566);
INSERT INTO "ledger" VALUES(101,'01a22d7c-9314-702c-ad93-7180197074f5',1,NULL,'charge',-2141,1796059468837);
INSERT INTO "ledger" VALUES(102,'01a22d7c-9314-702c-ad93-7180197074f5',1,1,'reward',1141,1796059468837);
INSERT INTO "ledger" VALUES(103,'01a22d7c-9314-702c-ad93-7180197074f5',-1,NULL,'fee',1000,1796059468837);
INSERT INTO "ledger" VALUES(104,'01a22d7c-9314-702c-ad93-7180197074f5',-1,NULL,'forgiven',-2141,1796059468837);
INSERT INTO "ledger" VALUES(105,'01a22d7c-9314-702c-ad93-7180197074f5',1,NULL,'forgiven',2141,1796059468837);
INSERT INTO "ledger" VALUES(106,'01a22d7c-945f-753b-bb0c-85e6c5c58ffe',-1,NULL,'request',1000,1796059468895);
INSERT INTO "ledger" VALUES(107,'01a22d7c-945f-753b-bb0c-85e6c5c58ffe',1,NULL,'request',-1000,1796059468895);
INSERT INTO "ledger" VALUES(108,'01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb',1,NULL,'charge',-1100,1796059468947);
INSERT INTO "ledger" VALUES(109,'01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb',1,1,'reward',100,1796059468947);
INSERT INTO "ledger" VALUES(110,'01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb',-1,NULL,'fee',1000,1796059468947);
INSERT INTO "ledger" VALUES(111,'01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb',-1,NULL,'forgiven',-959,1796059468947);
INSERT INTO "ledger" VALUES(112,'01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb',1,NULL,'forgiven',959,1796059468947);
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
INSERT INTO "made" VALUES(1,'text','demo-text',1796059463000,1,12,12,22,100,1,0,1,16,22);
INSERT INTO "made" VALUES(2,'text','demo-text',1796059463000,1,12,12,85,100,1,0,1,41,85);
INSERT INTO "made" VALUES(3,'text','demo-text',1796059463000,1,12,12,88,100,1,0,1,44,88);
INSERT INTO "made" VALUES(4,'text','demo-text',1796059464000,1,12,12,107,100,1,0,1,67,107);
INSERT INTO "made" VALUES(5,'text','demo-text',1796059464000,1,60,21,99,100,1,0,1,99,99);
INSERT INTO "made" VALUES(6,'text','demo-text',1796059464000,1,12,12,87,100,1,0,1,44,87);
INSERT INTO "made" VALUES(7,'text','demo-text',1796059464000,1,16,16,87,100,1,0,1,87,87);
INSERT INTO "made" VALUES(8,'text','demo-text',1796059464000,1,16,16,82,100,1,0,1,82,82);
INSERT INTO "made" VALUES(9,'text','demo-text',1796059464000,1,12,12,91,100,1,0,1,48,91);
INSERT INTO "made" VALUES(10,'text','demo-text',1796059464000,1,12,12,87,100,1,0,1,44,87);
INSERT INTO "made" VALUES(11,'text','demo-text',1796059464000,0,0,0,0,0,1,0,1,41,41);
INSERT INTO "made" VALUES(12,'text','demo-text',1796059464000,1,12,12,87,100,1,0,1,45,87);
INSERT INTO "made" VALUES(13,'text','demo-text',1796059464000,0,0,0,0,0,1,0,1,37,37);
INSERT INTO "made" VALUES(14,'image','demo-image',1796059465000,1,1966080,1966080,593,3121,1,0,1,593,593);
INSERT INTO "made" VALUES(15,'video','demo-video',1796059465000,1,69632,69632,399,133,1,0,1,399,399);
INSERT INTO "made" VALUES(16,'audio','demo-music',1796059465000,1,2,2,126,666,1,0,1,126,126);
INSERT INTO "made" VALUES(17,'audio','demo-speech',1796059466000,1,3,3,205,100,1,0,1,205,205);
INSERT INTO "made" VALUES(18,'audio','demo-speech',1796059466000,1,3,3,154,100,1,0,1,154,154);
INSERT INTO "made" VALUES(19,'audio','demo-speech',1796059467000,1,14,14,810,100,1,0,1,154,810);
INSERT INTO "made" VALUES(20,'audio','demo-speech',1796059468000,1,14,14,976,100,1,0,1,976,976);
INSERT INTO "made" VALUES(21,'audio','demo-hearing',1796059468000,1,3,3,42,100,1,0,1,33,42);
INSERT INTO "made" VALUES(22,'audio','demo-hearing',1796059468000,1,3,3,68,100,1,0,1,26,68);
INSERT INTO "made" VALUES(23,'image','demo-image',1796059468000,1,131072,131072,272,1141,1,0,1,272,272);
INSERT INTO "made" VALUES(24,'text','demo-text',1796059468000,1,16,16,53,100,1,0,1,53,53);
CREATE TABLE model_names (
    name TEXT PRIMARY KEY,
    model TEXT NOT NULL
);
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
INSERT INTO "postings" VALUES('01a22d7c-7d90-7bbf-adda-87c9fa937b22','start','',NULL,'start : -1 -14000, 1 14000',1796059463056);
INSERT INTO "postings" VALUES('01a22d7c-9316-72df-bb32-1e9a7f964427','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1796059468566);
INSERT INTO "postings" VALUES('01a22d7c-945f-753b-bb0c-85e6c5c58ffe','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1796059468895);
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
INSERT INTO "requests" VALUES('01a22d7c-8dde-7e09-9d83-db0e52578491',1,'audio','{"media":{"kind":"music","prompt":"Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep.","seconds":207.0,"is_speech":true,"format":"mp3"},"model":"demo-speech","count":1,"formats":["neutral"],"trusted":false,"price":null,"image_type":null,"client_ref":null,"progress_token":null,"document":null,"jobs":["01a22d7c-8dde-7acd-83e0-ba95d303dfd7"],"seed":2326996287,"shared_key":null}',1796059467231,1796063067230,0,0,1);
INSERT INTO "requests" VALUES('01a22d7c-9314-7448-9cc9-0eab960ce1ee',1,'image','{"request":{"prompt":"a red circle","params":{"n":1,"image_is_control":false,"return_control_map":false,"sampler_name":"k_euler_a","cfg_scale":5.0,"height":256,"width":256,"karras":true,"tiling":false,"hires_fix":false,"transparent":false,"steps":2,"seed":"1"},"nsfw":true,"trusted_workers":false,"validated_backends":false,"slow_workers":true,"extra_slow_workers":false,"censor_nsfw":true,"worker_blacklist":false,"models":["demo-image"],"source_processing":"img2img","r2":true,"shared":false,"replacement_filter":true,"dry_run":false,"disable_batching":false,"allow_downgrade":false},"jobs":["01a22d7c-9314-702c-ad93-7180197074f5"],"seed":394442671,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1796059468566,1796060068564,0,1000,1);
INSERT INTO "requests" VALUES('01a22d7c-945e-7250-84e5-085948b9ea53',1,'text','{"request":{"prompt":"Muster is","params":{"max_context_length":256,"max_length":16,"dynatemp_exponent":1.0},"trusted_workers":false,"validated_backends":false,"slow_workers":true,"worker_blacklist":false,"models":["demo-text"],"dry_run":false,"disable_batching":false,"allow_downgrade":false,"extra_slow_workers":false},"jobs":["01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb"],"seed":4219530672,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1796059468895,1796060668894,0,1000,1);
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
INSERT INTO "results" VALUES('01a22d7c-8dde-7acd-83e0-ba95d303dfd7','01a22d7c-8dde-7e09-9d83-db0e52578491',1,'demo-speech','delivered','stop','{"index":0,"seed":2326996287,"key":"results/01a22d7c-8dde-7acd-83e0-ba95d303dfd7-1.mp3","content_type":"audio/mpeg","sha256":"3049dea65399011607662c168f7a85f39b58ae81ac27e57f0ec00e874f06906b"}',1100,1000);
INSERT INTO "results" VALUES('01a22d7c-9314-702c-ad93-7180197074f5','01a22d7c-9314-7448-9cc9-0eab960ce1ee',1,'demo-image','delivered','stop','{"index":0,"seed":1,"key":"results/01a22d7c-9314-702c-ad93-7180197074f5-1.webp","content_type":"image/webp","sha256":"3070a5771a9bd0aa556ffa7fc3ee986e5f0686a6e60301beac9571e105566259","size":[256,256]}',2141,2141);
INSERT INTO "results" VALUES('01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb','01a22d7c-945e-7250-84e5-085948b9ea53',1,'demo-text','delivered','length','ensedTensedTensors and GGUF dG',1100,959);
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
INSERT INTO "rigs" VALUES(1,'','','',1,0,'[]','',0,0,0,1796059463474,'',0,'',0,NULL,0,24,0,6861,0,167,171796);
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
INSERT INTO "settings" VALUES('secret_check','16d9e8e654c2f0aec051bdbe97249e7f46502e2927626fd99757e08dff7b881e');
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
INSERT INTO "settled" VALUES('01a22d7c-7fe7-7e72-b736-269abe9562bb','01a22d7c-7fe4-761a-8e3f-438ce5b72b76',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796059463655,0,16,22,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8026-75f6-a185-0a1b8f627d83','01a22d7c-8025-7b3d-8dae-f369ac82c07f',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796059463718,0,41,85,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8083-71a5-933e-5f219e1e27e5','01a22d7c-8082-737d-a259-3d786b675af4',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796059463811,0,44,88,NULL);
INSERT INTO "settled" VALUES('01a22d7c-80e4-7b91-8656-f5c405658629','01a22d7c-80e3-7b24-8388-ebfdb67731dd',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796059463908,0,67,107,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8158-7a97-b396-083443f66655','01a22d7c-8158-7ed9-9ae5-fc6764ce9f75',1,1,'text','demo-text','delivered','tool_calls',1,22,21,21,100,1100,1796059464024,0,99,99,NULL);
INSERT INTO "settled" VALUES('01a22d7c-81c3-711f-b1d5-3ca80285686e','01a22d7c-81c2-7243-80e1-03fa60ee25de',1,1,'text','demo-text','delivered','length',1,2,12,12,100,1100,1796059464132,0,44,87,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8224-702d-8968-771977082e9f','01a22d7c-8223-7594-8706-7034b2fff4cb',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1796059464228,0,87,87,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8285-7125-b89f-34c45b298fff','01a22d7c-8284-794d-a29e-42e5883ecff7',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1796059464325,0,82,82,NULL);
INSERT INTO "settled" VALUES('01a22d7c-82e0-7e15-80e5-8dc9853d8383','01a22d7c-82e0-7767-82c5-7cce22e8c1c2',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796059464417,0,48,91,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8344-7746-a45e-e1b5c53007d1','01a22d7c-8343-773d-8906-ceb3df01e32b',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796059464516,0,44,87,NULL);
INSERT INTO "settled" VALUES('01a22d7c-83a4-7369-8e2c-f6e18387a8aa','01a22d7c-83a3-727a-ba44-9628eb86ad7c',1,1,'text','demo-text','delivered','stop',1,8,0,0,0,0,1796059464612,0,41,41,NULL);
INSERT INTO "settled" VALUES('01a22d7c-83d4-7268-b889-f37b5e46acf3','01a22d7c-83d3-7841-995b-34249d8285b7',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1796059464660,0,45,87,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8437-7482-b99d-5bc5d637c8b2','01a22d7c-8437-77ac-9ad0-9884afc120d8',1,1,'text','demo-text','delivered','stop',1,4,0,0,0,0,1796059464759,0,37,37,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8465-7f66-a320-ceffa8f7682f','01a22d7c-8463-71e8-b35e-6409695a00a6',1,1,'image','demo-image','delivered','stop',1,0,0,0,3121,4121,1796059464805,0,593,593,NULL);
INSERT INTO "settled" VALUES('01a22d7c-86bd-7b53-a1fb-d1922d3b0827','01a22d7c-86bc-7090-9cf9-79b872098b07',1,1,'video','demo-video','delivered','stop',1,0,0,0,133,1133,1796059465405,0,399,399,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8854-7156-96d7-39e4e4235ec7','01a22d7c-8853-79b5-b12a-81fd5bc16b19',1,1,'audio','demo-music','delivered','stop',1,0,0,0,666,1666,1796059465812,0,126,126,NULL);
INSERT INTO "settled" VALUES('01a22d7c-88d9-7788-a742-7e213ad4fcaa','01a22d7c-88d9-7a2a-abef-68c903c8b0b7',1,1,'audio','demo-speech','delivered','stop',1,32,0,0,100,1100,1796059465946,0,205,205,NULL);
INSERT INTO "settled" VALUES('01a22d7c-89c0-719b-82cd-990130c47425','01a22d7c-89be-7bc2-97b7-65c3a712d909',1,1,'audio','demo-speech','delivered','stop',1,32,0,0,100,1100,1796059466176,0,154,154,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8a67-78de-9261-7e90a0e671b6','01a22d7c-8a66-7263-8eb7-4e97da3f7a95',1,1,'audio','demo-speech','delivered','stop',1,197,0,0,100,1100,1796059466343,0,154,810,NULL);
INSERT INTO "settled" VALUES('01a22d7c-8dde-7acd-83e0-ba95d303dfd7','01a22d7c-8dde-7e09-9d83-db0e52578491',1,1,'audio','demo-speech','delivered','stop',1,0,0,0,100,1100,1796059467230,0,976,976,NULL);
INSERT INTO "settled" VALUES('01a22d7c-923b-72c3-909d-fa267d72f68f','01a22d7c-91eb-7503-a31a-b4b8643151d2',1,1,'audio','demo-hearing','delivered','stop',1,108,0,0,100,1100,1796059468347,0,33,42,NULL);
INSERT INTO "settled" VALUES('01a22d7c-92c7-7918-b03d-93bc48772557','01a22d7c-926c-7a39-b448-35d68901f34a',1,1,'audio','demo-hearing','delivered','stop',1,108,0,0,100,1100,1796059468487,0,26,68,NULL);
INSERT INTO "settled" VALUES('01a22d7c-9314-702c-ad93-7180197074f5','01a22d7c-9314-7448-9cc9-0eab960ce1ee',1,1,'image','demo-image','delivered','stop',1,0,0,0,1141,2141,1796059468565,0,272,272,NULL);
INSERT INTO "settled" VALUES('01a22d7c-945e-7e4f-b1b5-d273fd1dfdcb','01a22d7c-945e-7250-84e5-085948b9ea53',1,1,'text','demo-text','delivered','length',1,2,16,16,100,1100,1796059468894,0,53,53,NULL);
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
INSERT INTO "workers" VALUES(1,'5ac26229-7a03-4dec-a93a-5345064dbc1d','rig',1,0,1796059463474);
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
