-- key JYdsikZWMEFOcIdTGAemq0
-- secret c06881ee6f4d05f9f163c8f871c65e0e0c6541b854137cb4951e532e0416fc55
BEGIN TRANSACTION;
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    created_at BIGINT NOT NULL
, login TEXT);
INSERT INTO "accounts" VALUES(-1,'house','',0,NULL);
INSERT INTO "accounts" VALUES(0,'Anonymous','',0,NULL);
INSERT INTO "accounts" VALUES(1,'admin','user moderator admin worker_owner trusted customizer',1795890661165,'admin');
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
INSERT INTO "keys" VALUES(1,'d7c28b45ddc3',1,'68fff2acbe5d57e32efb2631289f4b824c4a9dadc663b7eedcb9cc5145d2c423','first start','inference.submit worker.connect account.read account.manage',NULL,1795890661169,NULL,NULL,1,0);
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    account BIGINT NOT NULL,
    worker BIGINT,
    reason TEXT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);
INSERT INTO "ledger" VALUES(1,'01a2236c-c72e-703d-9965-48c4fe38e352',-1,NULL,'start',-14000,1795890661165);
INSERT INTO "ledger" VALUES(2,'01a2236c-c72e-703d-9965-48c4fe38e352',1,NULL,'start',14000,1795890661165);
INSERT INTO "ledger" VALUES(3,'01a2236c-c8af-77b8-8e46-c6cee99a5d4e',1,NULL,'charge',-1100,1795890661562);
INSERT INTO "ledger" VALUES(4,'01a2236c-c8af-77b8-8e46-c6cee99a5d4e',1,1,'reward',100,1795890661562);
INSERT INTO "ledger" VALUES(5,'01a2236c-c8af-77b8-8e46-c6cee99a5d4e',-1,NULL,'fee',1000,1795890661562);
INSERT INTO "ledger" VALUES(6,'01a2236c-c8af-77b8-8e46-c6cee99a5d4e',-1,NULL,'forgiven',-1100,1795890661562);
INSERT INTO "ledger" VALUES(7,'01a2236c-c8af-77b8-8e46-c6cee99a5d4e',1,NULL,'forgiven',1100,1795890661562);
INSERT INTO "ledger" VALUES(8,'01a2236c-c8d6-7856-8556-1da13d11ba5a',1,NULL,'charge',-1100,1795890661672);
INSERT INTO "ledger" VALUES(9,'01a2236c-c8d6-7856-8556-1da13d11ba5a',1,1,'reward',100,1795890661672);
INSERT INTO "ledger" VALUES(10,'01a2236c-c8d6-7856-8556-1da13d11ba5a',-1,NULL,'fee',1000,1795890661672);
INSERT INTO "ledger" VALUES(11,'01a2236c-c8d6-7856-8556-1da13d11ba5a',-1,NULL,'forgiven',-1000,1795890661672);
INSERT INTO "ledger" VALUES(12,'01a2236c-c8d6-7856-8556-1da13d11ba5a',1,NULL,'forgiven',1000,1795890661672);
INSERT INTO "ledger" VALUES(13,'01a2236c-c92e-78a6-b819-b13d468622d7',1,NULL,'charge',-1100,1795890661764);
INSERT INTO "ledger" VALUES(14,'01a2236c-c92e-78a6-b819-b13d468622d7',1,1,'reward',100,1795890661764);
INSERT INTO "ledger" VALUES(15,'01a2236c-c92e-78a6-b819-b13d468622d7',-1,NULL,'fee',1000,1795890661764);
INSERT INTO "ledger" VALUES(16,'01a2236c-c92e-78a6-b819-b13d468622d7',-1,NULL,'forgiven',-1000,1795890661764);
INSERT INTO "ledger" VALUES(17,'01a2236c-c92e-78a6-b819-b13d468622d7',1,NULL,'forgiven',1000,1795890661764);
INSERT INTO "ledger" VALUES(18,'01a2236c-c98a-757a-b4ed-289832cc0b93',1,NULL,'charge',-1100,1795890661867);
INSERT INTO "ledger" VALUES(19,'01a2236c-c98a-757a-b4ed-289832cc0b93',1,1,'reward',100,1795890661867);
INSERT INTO "ledger" VALUES(20,'01a2236c-c98a-757a-b4ed-289832cc0b93',-1,NULL,'fee',1000,1795890661867);
INSERT INTO "ledger" VALUES(21,'01a2236c-c98a-757a-b4ed-289832cc0b93',-1,NULL,'forgiven',-1000,1795890661867);
INSERT INTO "ledger" VALUES(22,'01a2236c-c98a-757a-b4ed-289832cc0b93',1,NULL,'forgiven',1000,1795890661867);
INSERT INTO "ledger" VALUES(23,'01a2236c-c9f2-7315-847a-ff75d3db0214',1,NULL,'charge',-1100,1795890661968);
INSERT INTO "ledger" VALUES(24,'01a2236c-c9f2-7315-847a-ff75d3db0214',1,1,'reward',100,1795890661968);
INSERT INTO "ledger" VALUES(25,'01a2236c-c9f2-7315-847a-ff75d3db0214',-1,NULL,'fee',1000,1795890661968);
INSERT INTO "ledger" VALUES(26,'01a2236c-c9f2-7315-847a-ff75d3db0214',-1,NULL,'forgiven',-1000,1795890661968);
INSERT INTO "ledger" VALUES(27,'01a2236c-c9f2-7315-847a-ff75d3db0214',1,NULL,'forgiven',1000,1795890661968);
INSERT INTO "ledger" VALUES(28,'01a2236c-ca56-77d9-bdb6-f75c92105625',1,NULL,'charge',-1100,1795890662056);
INSERT INTO "ledger" VALUES(29,'01a2236c-ca56-77d9-bdb6-f75c92105625',1,1,'reward',100,1795890662056);
INSERT INTO "ledger" VALUES(30,'01a2236c-ca56-77d9-bdb6-f75c92105625',-1,NULL,'fee',1000,1795890662056);
INSERT INTO "ledger" VALUES(31,'01a2236c-ca56-77d9-bdb6-f75c92105625',-1,NULL,'forgiven',-1000,1795890662056);
INSERT INTO "ledger" VALUES(32,'01a2236c-ca56-77d9-bdb6-f75c92105625',1,NULL,'forgiven',1000,1795890662056);
INSERT INTO "ledger" VALUES(33,'01a2236c-caae-7c91-897f-fa226c4c6eaf',1,NULL,'charge',-1100,1795890662144);
INSERT INTO "ledger" VALUES(34,'01a2236c-caae-7c91-897f-fa226c4c6eaf',1,1,'reward',100,1795890662144);
INSERT INTO "ledger" VALUES(35,'01a2236c-caae-7c91-897f-fa226c4c6eaf',-1,NULL,'fee',1000,1795890662144);
INSERT INTO "ledger" VALUES(36,'01a2236c-caae-7c91-897f-fa226c4c6eaf',-1,NULL,'forgiven',-1000,1795890662144);
INSERT INTO "ledger" VALUES(37,'01a2236c-caae-7c91-897f-fa226c4c6eaf',1,NULL,'forgiven',1000,1795890662144);
INSERT INTO "ledger" VALUES(38,'01a2236c-cb06-7ae9-a825-31a4004132a2',1,NULL,'charge',-1100,1795890662236);
INSERT INTO "ledger" VALUES(39,'01a2236c-cb06-7ae9-a825-31a4004132a2',1,1,'reward',100,1795890662236);
INSERT INTO "ledger" VALUES(40,'01a2236c-cb06-7ae9-a825-31a4004132a2',-1,NULL,'fee',1000,1795890662236);
INSERT INTO "ledger" VALUES(41,'01a2236c-cb06-7ae9-a825-31a4004132a2',-1,NULL,'forgiven',-1000,1795890662236);
INSERT INTO "ledger" VALUES(42,'01a2236c-cb06-7ae9-a825-31a4004132a2',1,NULL,'forgiven',1000,1795890662236);
INSERT INTO "ledger" VALUES(43,'01a2236c-cb63-7a80-8d9e-bed4e783745f',1,NULL,'charge',-1100,1795890662328);
INSERT INTO "ledger" VALUES(44,'01a2236c-cb63-7a80-8d9e-bed4e783745f',1,1,'reward',100,1795890662328);
INSERT INTO "ledger" VALUES(45,'01a2236c-cb63-7a80-8d9e-bed4e783745f',-1,NULL,'fee',1000,1795890662328);
INSERT INTO "ledger" VALUES(46,'01a2236c-cb63-7a80-8d9e-bed4e783745f',-1,NULL,'forgiven',-1000,1795890662328);
INSERT INTO "ledger" VALUES(47,'01a2236c-cb63-7a80-8d9e-bed4e783745f',1,NULL,'forgiven',1000,1795890662328);
INSERT INTO "ledger" VALUES(48,'01a2236c-cbbe-7f06-9160-788cb87e1558',1,NULL,'charge',-1100,1795890662420);
INSERT INTO "ledger" VALUES(49,'01a2236c-cbbe-7f06-9160-788cb87e1558',1,1,'reward',100,1795890662420);
INSERT INTO "ledger" VALUES(50,'01a2236c-cbbe-7f06-9160-788cb87e1558',-1,NULL,'fee',1000,1795890662420);
INSERT INTO "ledger" VALUES(51,'01a2236c-cbbe-7f06-9160-788cb87e1558',-1,NULL,'forgiven',-1000,1795890662420);
INSERT INTO "ledger" VALUES(52,'01a2236c-cbbe-7f06-9160-788cb87e1558',1,NULL,'forgiven',1000,1795890662420);
INSERT INTO "ledger" VALUES(53,'01a2236c-cc75-75cb-9a5b-4cc7d8ccd9e2',1,NULL,'charge',-1100,1795890662604);
INSERT INTO "ledger" VALUES(54,'01a2236c-cc75-75cb-9a5b-4cc7d8ccd9e2',1,1,'reward',100,1795890662604);
INSERT INTO "ledger" VALUES(55,'01a2236c-cc75-75cb-9a5b-4cc7d8ccd9e2',-1,NULL,'fee',1000,1795890662604);
INSERT INTO "ledger" VALUES(56,'01a2236c-cc75-75cb-9a5b-4cc7d8ccd9e2',-1,NULL,'forgiven',-1000,1795890662604);
INSERT INTO "ledger" VALUES(57,'01a2236c-cc75-75cb-9a5b-4cc7d8ccd9e2',1,NULL,'forgiven',1000,1795890662604);
INSERT INTO "ledger" VALUES(58,'01a2236c-ccfe-7aae-a515-3979003b3ce6',1,NULL,'charge',-4121,1795890662971);
INSERT INTO "ledger" VALUES(59,'01a2236c-ccfe-7aae-a515-3979003b3ce6',1,1,'reward',3121,1795890662971);
INSERT INTO "ledger" VALUES(60,'01a2236c-ccfe-7aae-a515-3979003b3ce6',-1,NULL,'fee',1000,1795890662971);
INSERT INTO "ledger" VALUES(61,'01a2236c-ccfe-7aae-a515-3979003b3ce6',-1,NULL,'forgiven',-4021,1795890662971);
INSERT INTO "ledger" VALUES(62,'01a2236c-ccfe-7aae-a515-3979003b3ce6',1,NULL,'forgiven',4021,1795890662971);
INSERT INTO "ledger" VALUES(63,'01a2236c-ce40-7cde-b912-68391e02101f',1,NULL,'charge',-1133,1795890663196);
INSERT INTO "ledger" VALUES(64,'01a2236c-ce40-7cde-b912-68391e02101f',1,1,'reward',133,1795890663196);
INSERT INTO "ledger" VALUES(65,'01a2236c-ce40-7cde-b912-68391e02101f',-1,NULL,'fee',1000,1795890663196);
INSERT INTO "ledger" VALUES(66,'01a2236c-cf22-7283-95fc-82307d6430e4',1,NULL,'charge',-1666,1795890663297);
INSERT INTO "ledger" VALUES(67,'01a2236c-cf22-7283-95fc-82307d6430e4',1,1,'reward',666,1795890663297);
INSERT INTO "ledger" VALUES(68,'01a2236c-cf22-7283-95fc-82307d6430e4',-1,NULL,'fee',1000,1795890663297);
INSERT INTO "ledger" VALUES(69,'01a2236c-cf86-7310-8967-70faa82e60ca',1,NULL,'charge',-1100,1795890663435);
INSERT INTO "ledger" VALUES(70,'01a2236c-cf86-7310-8967-70faa82e60ca',1,1,'reward',100,1795890663435);
INSERT INTO "ledger" VALUES(71,'01a2236c-cf86-7310-8967-70faa82e60ca',-1,NULL,'fee',1000,1795890663435);
INSERT INTO "ledger" VALUES(72,'01a2236c-d015-7141-8594-82a6990b45c6',1,NULL,'charge',-1100,1795890663523);
INSERT INTO "ledger" VALUES(73,'01a2236c-d015-7141-8594-82a6990b45c6',1,1,'reward',100,1795890663523);
INSERT INTO "ledger" VALUES(74,'01a2236c-d015-7141-8594-82a6990b45c6',-1,NULL,'fee',1000,1795890663523);
INSERT INTO "ledger" VALUES(75,'01a2236c-d015-7141-8594-82a6990b45c6',-1,NULL,'forgiven',-979,1795890663523);
INSERT INTO "ledger" VALUES(76,'01a2236c-d015-7141-8594-82a6990b45c6',1,NULL,'forgiven',979,1795890663523);
INSERT INTO "ledger" VALUES(77,'01a2236c-d06a-732f-b479-f7b1c74b6a56',1,NULL,'charge',-1100,1795890664011);
INSERT INTO "ledger" VALUES(78,'01a2236c-d06a-732f-b479-f7b1c74b6a56',1,1,'reward',100,1795890664011);
INSERT INTO "ledger" VALUES(79,'01a2236c-d06a-732f-b479-f7b1c74b6a56',-1,NULL,'fee',1000,1795890664011);
INSERT INTO "ledger" VALUES(80,'01a2236c-d06a-732f-b479-f7b1c74b6a56',-1,NULL,'forgiven',-1000,1795890664011);
INSERT INTO "ledger" VALUES(81,'01a2236c-d06a-732f-b479-f7b1c74b6a56',1,NULL,'forgiven',1000,1795890664011);
INSERT INTO "ledger" VALUES(82,'01a2236c-d262-7847-8836-50465c0524b4',1,NULL,'charge',-1100,1795890664492);
INSERT INTO "ledger" VALUES(83,'01a2236c-d262-7847-8836-50465c0524b4',1,1,'reward',100,1795890664492);
INSERT INTO "ledger" VALUES(84,'01a2236c-d262-7847-8836-50465c0524b4',-1,NULL,'fee',1000,1795890664492);
INSERT INTO "ledger" VALUES(85,'01a2236c-d262-7847-8836-50465c0524b4',-1,NULL,'forgiven',-1000,1795890664492);
INSERT INTO "ledger" VALUES(86,'01a2236c-d262-7847-8836-50465c0524b4',1,NULL,'forgiven',1000,1795890664492);
INSERT INTO "ledger" VALUES(87,'01a2236c-d46e-7f1f-8fa5-a20ca1504b7d',1,NULL,'charge',-1100,1795890664616);
INSERT INTO "ledger" VALUES(88,'01a2236c-d46e-7f1f-8fa5-a20ca1504b7d',1,1,'reward',100,1795890664616);
INSERT INTO "ledger" VALUES(89,'01a2236c-d46e-7f1f-8fa5-a20ca1504b7d',-1,NULL,'fee',1000,1795890664616);
INSERT INTO "ledger" VALUES(90,'01a2236c-d46e-7f1f-8fa5-a20ca1504b7d',-1,NULL,'forgiven',-1000,1795890664616);
INSERT INTO "ledger" VALUES(91,'01a2236c-d46e-7f1f-8fa5-a20ca1504b7d',1,NULL,'forgiven',1000,1795890664616);
INSERT INTO "ledger" VALUES(92,'01a2236c-d4d7-7945-9d82-9e019c730be2',1,NULL,'charge',-1100,1795890664720);
INSERT INTO "ledger" VALUES(93,'01a2236c-d4d7-7945-9d82-9e019c730be2',1,1,'reward',100,1795890664720);
INSERT INTO "ledger" VALUES(94,'01a2236c-d4d7-7945-9d82-9e019c730be2',-1,NULL,'fee',1000,1795890664720);
INSERT INTO "ledger" VALUES(95,'01a2236c-d4d7-7945-9d82-9e019c730be2',-1,NULL,'forgiven',-1000,1795890664720);
INSERT INTO "ledger" VALUES(96,'01a2236c-d4d7-7945-9d82-9e019c730be2',1,NULL,'forgiven',1000,1795890664720);
INSERT INTO "ledger" VALUES(97,'01a2236c-d516-7117-a92a-171cc6c0d02c',-1,NULL,'request',1000,1795890664726);
INSERT INTO "ledger" VALUES(98,'01a2236c-d516-7117-a92a-171cc6c0d02c',1,NULL,'request',-1000,1795890664726);
INSERT INTO "ledger" VALUES(99,'01a2236c-d516-7117-a92a-171cc6c0d02c',-1,NULL,'forgiven',-900,1795890664726);
INSERT INTO "ledger" VALUES(100,'01a2236c-d516-7117-a92a-171cc6c0d02c',1,NULL,'forgiven',900,1795890664726);
INSERT INTO "ledger" VALUES(101,'01a2236c-d515-727a-95a0-7c2a97ae26fc',1,NULL,'charge',-2141,1795890664866);
INSERT INTO "ledger" VALUES(102,'01a2236c-d515-727a-95a0-7c2a97ae26fc',1,1,'reward',1141,1795890664866);
INSERT INTO "ledger" VALUES(103,'01a2236c-d515-727a-95a0-7c2a97ae26fc',-1,NULL,'fee',1000,1795890664866);
INSERT INTO "ledger" VALUES(104,'01a2236c-d515-727a-95a0-7c2a97ae26fc',-1,NULL,'forgiven',-2141,1795890664866);
INSERT INTO "ledger" VALUES(105,'01a2236c-d515-727a-95a0-7c2a97ae26fc',1,NULL,'forgiven',2141,1795890664866);
INSERT INTO "ledger" VALUES(106,'01a2236c-d5b8-70e8-97c3-def9d07a34a1',-1,NULL,'request',1000,1795890664888);
INSERT INTO "ledger" VALUES(107,'01a2236c-d5b8-70e8-97c3-def9d07a34a1',1,NULL,'request',-1000,1795890664888);
INSERT INTO "ledger" VALUES(108,'01a2236c-d5b7-7d02-b491-ff3acbae6a32',1,NULL,'charge',-1100,1795890664963);
INSERT INTO "ledger" VALUES(109,'01a2236c-d5b7-7d02-b491-ff3acbae6a32',1,1,'reward',100,1795890664963);
INSERT INTO "ledger" VALUES(110,'01a2236c-d5b7-7d02-b491-ff3acbae6a32',-1,NULL,'fee',1000,1795890664963);
INSERT INTO "ledger" VALUES(111,'01a2236c-d5b7-7d02-b491-ff3acbae6a32',-1,NULL,'forgiven',-959,1795890664963);
INSERT INTO "ledger" VALUES(112,'01a2236c-d5b7-7d02-b491-ff3acbae6a32',1,NULL,'forgiven',959,1795890664963);
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
INSERT INTO "made" VALUES(1,'text','demo-text',1795890661000,1,12,12,11,100,1,0,1,9,11);
INSERT INTO "made" VALUES(2,'text','demo-text',1795890661000,1,12,12,82,100,1,0,1,82,82);
INSERT INTO "made" VALUES(3,'text','demo-text',1795890661000,1,12,12,86,100,1,0,1,45,86);
INSERT INTO "made" VALUES(4,'text','demo-text',1795890661000,1,12,12,97,100,1,0,1,55,97);
INSERT INTO "made" VALUES(5,'text','demo-text',1795890661000,1,60,21,94,100,1,0,1,94,94);
INSERT INTO "made" VALUES(6,'text','demo-text',1795890662000,1,12,12,82,100,1,0,1,41,82);
INSERT INTO "made" VALUES(7,'text','demo-text',1795890662000,1,16,16,82,100,1,0,1,82,82);
INSERT INTO "made" VALUES(8,'text','demo-text',1795890662000,1,16,16,86,100,1,0,1,42,86);
INSERT INTO "made" VALUES(9,'text','demo-text',1795890662000,1,12,12,85,100,1,0,1,85,85);
INSERT INTO "made" VALUES(10,'text','demo-text',1795890662000,1,12,12,86,100,1,0,1,42,86);
INSERT INTO "made" VALUES(11,'text','demo-text',1795890662000,0,0,0,0,0,1,0,1,39,86);
INSERT INTO "made" VALUES(12,'text','demo-text',1795890662000,1,12,12,87,100,1,0,1,43,87);
INSERT INTO "made" VALUES(13,'text','demo-text',1795890662000,0,0,0,0,0,1,0,1,38,38);
INSERT INTO "made" VALUES(14,'image','demo-image',1795890662000,1,1966080,1966080,317,3121,1,0,1,317,317);
INSERT INTO "made" VALUES(15,'video','demo-video',1795890663000,1,69632,69632,220,133,1,0,1,220,220);
INSERT INTO "made" VALUES(16,'audio','demo-music',1795890663000,1,2,2,95,666,1,0,1,95,95);
INSERT INTO "made" VALUES(17,'audio','demo-speech',1795890663000,1,3,3,133,100,1,0,1,133,133);
INSERT INTO "made" VALUES(18,'audio','demo-speech',1795890663000,1,3,3,78,100,1,0,1,78,78);
INSERT INTO "made" VALUES(19,'audio','demo-speech',1795890664000,1,14,14,481,100,1,0,1,79,481);
INSERT INTO "made" VALUES(20,'audio','demo-speech',1795890664000,1,14,14,458,100,1,0,1,458,458);
INSERT INTO "made" VALUES(21,'audio','demo-hearing',1795890664000,1,3,3,58,100,1,0,1,16,58);
INSERT INTO "made" VALUES(22,'audio','demo-hearing',1795890664000,1,3,3,57,100,1,0,1,18,57);
INSERT INTO "made" VALUES(23,'image','demo-image',1795890664000,1,131072,131072,141,1141,1,0,1,141,141);
INSERT INTO "made" VALUES(24,'text','demo-text',1795890664000,1,16,16,76,100,1,0,1,32,76);
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
INSERT INTO "postings" VALUES('01a2236c-c72e-703d-9965-48c4fe38e352','start','',NULL,'start : -1 -14000, 1 14000',1795890661165);
INSERT INTO "postings" VALUES('01a2236c-d516-7117-a92a-171cc6c0d02c','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1795890664726);
INSERT INTO "postings" VALUES('01a2236c-d5b8-70e8-97c3-def9d07a34a1','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1795890664888);
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
CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    account BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    accepted_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    cancelled BIGINT NOT NULL
, fee BIGINT NOT NULL DEFAULT 0, owner BIGINT NOT NULL DEFAULT 0);
INSERT INTO "requests" VALUES('01a2236c-d262-785a-b4d5-5ec23cfa5623',1,'audio','{"media":{"kind":"music","prompt":"Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep. Good morning. Three happy sheep.","seconds":207.0,"is_speech":true,"format":"wav"},"model":"demo-speech","count":1,"formats":["neutral","openai-chat"],"trusted":false,"price":null,"image_type":null,"client_ref":null,"progress_token":null,"document":null,"jobs":["01a2236c-d262-7847-8836-50465c0524b4"],"seed":78018618,"shared_key":null}',1795890664035,1795894264034,0,0,1);
INSERT INTO "requests" VALUES('01a2236c-d515-7499-94e8-2295ea92444b',1,'image','{"request":{"prompt":"a red circle","params":{"n":1,"image_is_control":false,"return_control_map":false,"sampler_name":"k_euler_a","cfg_scale":5.0,"height":256,"width":256,"karras":true,"tiling":false,"hires_fix":false,"transparent":false,"steps":2,"seed":"1"},"nsfw":true,"trusted_workers":false,"validated_backends":false,"slow_workers":true,"extra_slow_workers":false,"censor_nsfw":true,"worker_blacklist":false,"models":["demo-image"],"source_processing":"img2img","r2":true,"shared":false,"replacement_filter":true,"dry_run":false,"disable_batching":false,"allow_downgrade":false},"jobs":["01a2236c-d515-727a-95a0-7c2a97ae26fc"],"seed":871665902,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1795890664726,1795891264725,0,1000,1);
INSERT INTO "requests" VALUES('01a2236c-d5b7-7071-9f9a-00a710f7fd49',1,'text','{"request":{"prompt":"Muster is","params":{"max_context_length":256,"max_length":16,"dynatemp_exponent":1.0},"trusted_workers":false,"validated_backends":false,"slow_workers":true,"worker_blacklist":false,"models":["demo-text"],"dry_run":false,"disable_batching":false,"allow_downgrade":false,"extra_slow_workers":false},"jobs":["01a2236c-d5b7-7d02-b491-ff3acbae6a32"],"seed":2958004647,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1795890664888,1795891864887,0,1000,1);
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
INSERT INTO "results" VALUES('01a2236c-d262-7847-8836-50465c0524b4','01a2236c-d262-785a-b4d5-5ec23cfa5623',1,'demo-speech','delivered','stop','{"index":0,"seed":78018618,"key":"results/01a2236c-d262-7847-8836-50465c0524b4-1.wav","content_type":"audio/wav","sha256":"00c633204a0515796c348c361324e18a27fe1281b81c84fecc1dc63867485113"}',1100,1000);
INSERT INTO "results" VALUES('01a2236c-d515-727a-95a0-7c2a97ae26fc','01a2236c-d515-7499-94e8-2295ea92444b',1,'demo-image','delivered','stop','{"index":0,"seed":1,"key":"results/01a2236c-d515-727a-95a0-7c2a97ae26fc-1.webp","content_type":"image/webp","sha256":"3070a5771a9bd0aa556ffa7fc3ee986e5f0686a6e60301beac9571e105566259","size":[256,256]}',2141,2141);
INSERT INTO "results" VALUES('01a2236c-d5b7-7d02-b491-ff3acbae6a32','01a2236c-d5b7-7071-9f9a-00a710f7fd49',1,'demo-text','delivered','length','ensedTensedTensors and GGUF dG',1100,959);
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
INSERT INTO "rigs" VALUES(1,'','','',1,0,'[]','',0,0,0,1795890661420,'',0,'',0,NULL,0,24,0,6861,0,644,401228);
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
INSERT INTO "settings" VALUES('secret_check','6648a2a476843bba69e9cba3c612ce4a38bd6a56daceb604eff13d06e6b2d554');
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
INSERT INTO "settled" VALUES('01a2236c-c8af-77b8-8e46-c6cee99a5d4e','01a2236c-c8ad-7c64-a0a5-0d3e2d30da7e',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795890661551,0,9,11,NULL);
INSERT INTO "settled" VALUES('01a2236c-c8d6-7856-8556-1da13d11ba5a','01a2236c-c8d5-7944-9c61-444dc82e7ad0',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795890661590,0,82,82,NULL);
INSERT INTO "settled" VALUES('01a2236c-c92e-78a6-b819-b13d468622d7','01a2236c-c92e-7cca-8d67-404bbb14e62b',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795890661678,0,45,86,NULL);
INSERT INTO "settled" VALUES('01a2236c-c98a-757a-b4ed-289832cc0b93','01a2236c-c98a-7a9d-8034-900e9f2ad373',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795890661770,0,55,97,NULL);
INSERT INTO "settled" VALUES('01a2236c-c9f2-7315-847a-ff75d3db0214','01a2236c-c9f1-764f-9726-9637a7347615',1,1,'text','demo-text','delivered','tool_calls',1,22,21,21,100,1100,1795890661874,0,94,94,NULL);
INSERT INTO "settled" VALUES('01a2236c-ca56-77d9-bdb6-f75c92105625','01a2236c-ca55-737d-9904-3391b48b213a',1,1,'text','demo-text','delivered','length',1,2,12,12,100,1100,1795890661974,0,41,82,NULL);
INSERT INTO "settled" VALUES('01a2236c-caae-7c91-897f-fa226c4c6eaf','01a2236c-caad-7adf-90d5-f63d09cf7f85',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1795890662062,0,82,82,NULL);
INSERT INTO "settled" VALUES('01a2236c-cb06-7ae9-a825-31a4004132a2','01a2236c-cb05-7797-839b-d41c5f87a289',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1795890662150,0,42,86,NULL);
INSERT INTO "settled" VALUES('01a2236c-cb63-7a80-8d9e-bed4e783745f','01a2236c-cb62-7477-af54-b5fe6bed2c07',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795890662243,0,85,85,NULL);
INSERT INTO "settled" VALUES('01a2236c-cbbe-7f06-9160-788cb87e1558','01a2236c-cbbd-74d5-bb4e-c82fb744ffb5',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795890662334,0,42,86,NULL);
INSERT INTO "settled" VALUES('01a2236c-cc19-7e99-9148-5211ff6ea5a8','01a2236c-cc19-7623-b43e-e37cdf7d8437',1,1,'text','demo-text','delivered','stop',1,8,0,0,0,0,1795890662425,0,39,86,NULL);
INSERT INTO "settled" VALUES('01a2236c-cc75-75cb-9a5b-4cc7d8ccd9e2','01a2236c-cc75-7ae7-a3d7-121905da4e21',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795890662517,0,43,87,NULL);
INSERT INTO "settled" VALUES('01a2236c-ccd3-7b96-9e9a-33661a1aa2c9','01a2236c-ccd2-795f-8155-440a256066fd',1,1,'text','demo-text','delivered','stop',1,4,0,0,0,0,1795890662611,0,38,38,NULL);
INSERT INTO "settled" VALUES('01a2236c-ccfe-7aae-a515-3979003b3ce6','01a2236c-ccfd-7443-87ae-025c00c3f617',1,1,'image','demo-image','delivered','stop',1,0,0,0,3121,4121,1795890662654,0,317,317,NULL);
INSERT INTO "settled" VALUES('01a2236c-ce40-7cde-b912-68391e02101f','01a2236c-ce40-73a5-b281-39e8f56f9726',1,1,'video','demo-video','delivered','stop',1,0,0,0,133,1133,1795890662976,0,220,220,NULL);
INSERT INTO "settled" VALUES('01a2236c-cf22-7283-95fc-82307d6430e4','01a2236c-cf21-736c-9176-0ae589241e15',1,1,'audio','demo-music','delivered','stop',1,0,0,0,666,1666,1795890663202,0,95,95,NULL);
INSERT INTO "settled" VALUES('01a2236c-cf86-7310-8967-70faa82e60ca','01a2236c-cf86-7600-b017-276d82b3afd2',1,1,'audio','demo-speech','delivered','stop',1,32,0,0,100,1100,1795890663302,0,133,133,NULL);
INSERT INTO "settled" VALUES('01a2236c-d015-7141-8594-82a6990b45c6','01a2236c-d014-750a-80c9-499bcbe38652',1,1,'audio','demo-speech','delivered','stop',1,32,0,0,100,1100,1795890663445,0,78,78,NULL);
INSERT INTO "settled" VALUES('01a2236c-d06a-732f-b479-f7b1c74b6a56','01a2236c-d06a-78de-9b77-193d003433f8',1,1,'audio','demo-speech','delivered','stop',1,197,0,0,100,1100,1795890663530,0,79,481,NULL);
INSERT INTO "settled" VALUES('01a2236c-d262-7847-8836-50465c0524b4','01a2236c-d262-785a-b4d5-5ec23cfa5623',1,1,'audio','demo-speech','delivered','stop',1,0,0,0,100,1100,1795890664034,0,458,458,NULL);
INSERT INTO "settled" VALUES('01a2236c-d46e-7f1f-8fa5-a20ca1504b7d','01a2236c-d443-7ac5-8c72-a52e1201697a',1,1,'audio','demo-hearing','delivered','stop',1,108,0,0,100,1100,1795890664558,0,16,58,NULL);
INSERT INTO "settled" VALUES('01a2236c-d4d7-7945-9d82-9e019c730be2','01a2236c-d4ad-7f78-927f-8ca5098e1aaa',1,1,'audio','demo-hearing','delivered','stop',1,108,0,0,100,1100,1795890664663,0,18,57,NULL);
INSERT INTO "settled" VALUES('01a2236c-d515-727a-95a0-7c2a97ae26fc','01a2236c-d515-7499-94e8-2295ea92444b',1,1,'image','demo-image','delivered','stop',1,0,0,0,1141,2141,1795890664725,0,141,141,NULL);
INSERT INTO "settled" VALUES('01a2236c-d5b7-7d02-b491-ff3acbae6a32','01a2236c-d5b7-7071-9f9a-00a710f7fd49',1,1,'text','demo-text','delivered','length',1,2,16,16,100,1100,1795890664887,0,32,76,NULL);
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
INSERT INTO "workers" VALUES(1,'d54792b4-de70-40e2-a74b-7613b0b12a04','rig',1,0,1795890661420);
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
