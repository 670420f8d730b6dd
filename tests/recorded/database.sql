-- key jdUzpJmcFf1EXs9SJbtz_p
-- secret 78119eb925e819480f732c47380ef6b30bcb5d85d632644b45b7066745252c4d
BEGIN TRANSACTION;
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    created_at BIGINT NOT NULL
, login TEXT);
INSERT INTO "accounts" VALUES(-1,'house','',0,NULL);
INSERT INTO "accounts" VALUES(0,'Anonymous','',0,NULL);
INSERT INTO "accounts" VALUES(1,'admin','user moderator admin worker_owner trusted customizer',1795889157650,'admin');
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
INSERT INTO "keys" VALUES(1,'30314e53cc59',1,'1d366a0fb261e3c42a7bc44de6705fabcb4badca2d01c1883552ca29dd2cf8d5','first start','inference.submit worker.connect account.read account.manage',NULL,1795889157651,NULL,NULL,1,0);
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    account BIGINT NOT NULL,
    worker BIGINT,
    reason TEXT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);
INSERT INTO "ledger" VALUES(1,'01a22355-d612-71df-ba41-6b6011c55510',-1,NULL,'start',-14000,1795889157650);
INSERT INTO "ledger" VALUES(2,'01a22355-d612-71df-ba41-6b6011c55510',1,NULL,'start',14000,1795889157650);
INSERT INTO "ledger" VALUES(3,'01a22355-d7bb-7a63-9dcd-a869350abe5b',1,NULL,'charge',-1100,1795889158086);
INSERT INTO "ledger" VALUES(4,'01a22355-d7bb-7a63-9dcd-a869350abe5b',1,1,'reward',100,1795889158086);
INSERT INTO "ledger" VALUES(5,'01a22355-d7bb-7a63-9dcd-a869350abe5b',-1,NULL,'fee',1000,1795889158086);
INSERT INTO "ledger" VALUES(6,'01a22355-d7bb-7a63-9dcd-a869350abe5b',-1,NULL,'forgiven',-1100,1795889158086);
INSERT INTO "ledger" VALUES(7,'01a22355-d7bb-7a63-9dcd-a869350abe5b',1,NULL,'forgiven',1100,1795889158086);
INSERT INTO "ledger" VALUES(8,'01a22355-d7e3-7252-b587-bf3991759e11',1,NULL,'charge',-1100,1795889158200);
INSERT INTO "ledger" VALUES(9,'01a22355-d7e3-7252-b587-bf3991759e11',1,1,'reward',100,1795889158200);
INSERT INTO "ledger" VALUES(10,'01a22355-d7e3-7252-b587-bf3991759e11',-1,NULL,'fee',1000,1795889158200);
INSERT INTO "ledger" VALUES(11,'01a22355-d7e3-7252-b587-bf3991759e11',-1,NULL,'forgiven',-1000,1795889158200);
INSERT INTO "ledger" VALUES(12,'01a22355-d7e3-7252-b587-bf3991759e11',1,NULL,'forgiven',1000,1795889158200);
INSERT INTO "ledger" VALUES(13,'01a22355-d83f-771a-9429-7fbb04c6048d',1,NULL,'charge',-1100,1795889158288);
INSERT INTO "ledger" VALUES(14,'01a22355-d83f-771a-9429-7fbb04c6048d',1,1,'reward',100,1795889158288);
INSERT INTO "ledger" VALUES(15,'01a22355-d83f-771a-9429-7fbb04c6048d',-1,NULL,'fee',1000,1795889158288);
INSERT INTO "ledger" VALUES(16,'01a22355-d83f-771a-9429-7fbb04c6048d',-1,NULL,'forgiven',-1000,1795889158288);
INSERT INTO "ledger" VALUES(17,'01a22355-d83f-771a-9429-7fbb04c6048d',1,NULL,'forgiven',1000,1795889158288);
INSERT INTO "ledger" VALUES(18,'01a22355-d899-7166-ac05-5c6bfce08fca',1,NULL,'charge',-1100,1795889158396);
INSERT INTO "ledger" VALUES(19,'01a22355-d899-7166-ac05-5c6bfce08fca',1,1,'reward',100,1795889158396);
INSERT INTO "ledger" VALUES(20,'01a22355-d899-7166-ac05-5c6bfce08fca',-1,NULL,'fee',1000,1795889158396);
INSERT INTO "ledger" VALUES(21,'01a22355-d899-7166-ac05-5c6bfce08fca',-1,NULL,'forgiven',-1000,1795889158396);
INSERT INTO "ledger" VALUES(22,'01a22355-d899-7166-ac05-5c6bfce08fca',1,NULL,'forgiven',1000,1795889158396);
INSERT INTO "ledger" VALUES(23,'01a22355-d903-75d1-b93b-346c47c89d19',1,NULL,'charge',-1100,1795889158492);
INSERT INTO "ledger" VALUES(24,'01a22355-d903-75d1-b93b-346c47c89d19',1,1,'reward',100,1795889158492);
INSERT INTO "ledger" VALUES(25,'01a22355-d903-75d1-b93b-346c47c89d19',-1,NULL,'fee',1000,1795889158492);
INSERT INTO "ledger" VALUES(26,'01a22355-d903-75d1-b93b-346c47c89d19',-1,NULL,'forgiven',-1000,1795889158492);
INSERT INTO "ledger" VALUES(27,'01a22355-d903-75d1-b93b-346c47c89d19',1,NULL,'forgiven',1000,1795889158492);
INSERT INTO "ledger" VALUES(28,'01a22355-d962-7e05-beaa-1e5f91646e09',1,NULL,'charge',-1100,1795889158579);
INSERT INTO "ledger" VALUES(29,'01a22355-d962-7e05-beaa-1e5f91646e09',1,1,'reward',100,1795889158579);
INSERT INTO "ledger" VALUES(30,'01a22355-d962-7e05-beaa-1e5f91646e09',-1,NULL,'fee',1000,1795889158579);
INSERT INTO "ledger" VALUES(31,'01a22355-d962-7e05-beaa-1e5f91646e09',-1,NULL,'forgiven',-1000,1795889158579);
INSERT INTO "ledger" VALUES(32,'01a22355-d962-7e05-beaa-1e5f91646e09',1,NULL,'forgiven',1000,1795889158579);
INSERT INTO "ledger" VALUES(33,'01a22355-d9ba-7d30-8a83-c66fb942dc6e',1,NULL,'charge',-1100,1795889158671);
INSERT INTO "ledger" VALUES(34,'01a22355-d9ba-7d30-8a83-c66fb942dc6e',1,1,'reward',100,1795889158671);
INSERT INTO "ledger" VALUES(35,'01a22355-d9ba-7d30-8a83-c66fb942dc6e',-1,NULL,'fee',1000,1795889158671);
INSERT INTO "ledger" VALUES(36,'01a22355-d9ba-7d30-8a83-c66fb942dc6e',-1,NULL,'forgiven',-1000,1795889158671);
INSERT INTO "ledger" VALUES(37,'01a22355-d9ba-7d30-8a83-c66fb942dc6e',1,NULL,'forgiven',1000,1795889158671);
INSERT INTO "ledger" VALUES(38,'01a22355-da17-7f3f-943d-ce8bc0176fad',1,NULL,'charge',-1100,1795889158768);
INSERT INTO "ledger" VALUES(39,'01a22355-da17-7f3f-943d-ce8bc0176fad',1,1,'reward',100,1795889158768);
INSERT INTO "ledger" VALUES(40,'01a22355-da17-7f3f-943d-ce8bc0176fad',-1,NULL,'fee',1000,1795889158768);
INSERT INTO "ledger" VALUES(41,'01a22355-da17-7f3f-943d-ce8bc0176fad',-1,NULL,'forgiven',-1000,1795889158768);
INSERT INTO "ledger" VALUES(42,'01a22355-da17-7f3f-943d-ce8bc0176fad',1,NULL,'forgiven',1000,1795889158768);
INSERT INTO "ledger" VALUES(43,'01a22355-da77-7260-8b51-556e8b4986d5',1,NULL,'charge',-1100,1795889158860);
INSERT INTO "ledger" VALUES(44,'01a22355-da77-7260-8b51-556e8b4986d5',1,1,'reward',100,1795889158860);
INSERT INTO "ledger" VALUES(45,'01a22355-da77-7260-8b51-556e8b4986d5',-1,NULL,'fee',1000,1795889158860);
INSERT INTO "ledger" VALUES(46,'01a22355-da77-7260-8b51-556e8b4986d5',-1,NULL,'forgiven',-1000,1795889158860);
INSERT INTO "ledger" VALUES(47,'01a22355-da77-7260-8b51-556e8b4986d5',1,NULL,'forgiven',1000,1795889158860);
INSERT INTO "ledger" VALUES(48,'01a22355-dad2-7cd2-b0bc-ef8cbe939f73',1,NULL,'charge',-1100,1795889158948);
INSERT INTO "ledger" VALUES(49,'01a22355-dad2-7cd2-b0bc-ef8cbe939f73',1,1,'reward',100,1795889158948);
INSERT INTO "ledger" VALUES(50,'01a22355-dad2-7cd2-b0bc-ef8cbe939f73',-1,NULL,'fee',1000,1795889158948);
INSERT INTO "ledger" VALUES(51,'01a22355-dad2-7cd2-b0bc-ef8cbe939f73',-1,NULL,'forgiven',-1000,1795889158948);
INSERT INTO "ledger" VALUES(52,'01a22355-dad2-7cd2-b0bc-ef8cbe939f73',1,NULL,'forgiven',1000,1795889158948);
INSERT INTO "ledger" VALUES(53,'01a22355-db30-785f-8b7f-25b91d0308ba',1,NULL,'charge',-1100,1795889159048);
INSERT INTO "ledger" VALUES(54,'01a22355-db30-785f-8b7f-25b91d0308ba',1,1,'reward',100,1795889159048);
INSERT INTO "ledger" VALUES(55,'01a22355-db30-785f-8b7f-25b91d0308ba',-1,NULL,'fee',1000,1795889159048);
INSERT INTO "ledger" VALUES(56,'01a22355-db30-785f-8b7f-25b91d0308ba',-1,NULL,'forgiven',-1000,1795889159048);
INSERT INTO "ledger" VALUES(57,'01a22355-db30-785f-8b7f-25b91d0308ba',1,NULL,'forgiven',1000,1795889159048);
INSERT INTO "ledger" VALUES(58,'01a22355-dbbb-7d05-89b6-6b1cd298b8c4',1,NULL,'charge',-4121,1795889159411);
INSERT INTO "ledger" VALUES(59,'01a22355-dbbb-7d05-89b6-6b1cd298b8c4',1,1,'reward',3121,1795889159411);
INSERT INTO "ledger" VALUES(60,'01a22355-dbbb-7d05-89b6-6b1cd298b8c4',-1,NULL,'fee',1000,1795889159411);
INSERT INTO "ledger" VALUES(61,'01a22355-dbbb-7d05-89b6-6b1cd298b8c4',-1,NULL,'forgiven',-4021,1795889159411);
INSERT INTO "ledger" VALUES(62,'01a22355-dbbb-7d05-89b6-6b1cd298b8c4',1,NULL,'forgiven',4021,1795889159411);
INSERT INTO "ledger" VALUES(63,'01a22355-dcf8-794c-9a45-f732b8e39aaf',1,NULL,'charge',-1133,1795889159645);
INSERT INTO "ledger" VALUES(64,'01a22355-dcf8-794c-9a45-f732b8e39aaf',1,1,'reward',133,1795889159645);
INSERT INTO "ledger" VALUES(65,'01a22355-dcf8-794c-9a45-f732b8e39aaf',-1,NULL,'fee',1000,1795889159645);
INSERT INTO "ledger" VALUES(66,'01a22355-dde2-7256-b24b-c98bca83fd71',1,NULL,'charge',-1666,1795889159749);
INSERT INTO "ledger" VALUES(67,'01a22355-dde2-7256-b24b-c98bca83fd71',1,1,'reward',666,1795889159749);
INSERT INTO "ledger" VALUES(68,'01a22355-dde2-7256-b24b-c98bca83fd71',-1,NULL,'fee',1000,1795889159749);
INSERT INTO "ledger" VALUES(69,'01a22355-de4d-74db-881e-a21ad9723c98',1,NULL,'charge',-1100,1795889159882);
INSERT INTO "ledger" VALUES(70,'01a22355-de4d-74db-881e-a21ad9723c98',1,1,'reward',100,1795889159882);
INSERT INTO "ledger" VALUES(71,'01a22355-de4d-74db-881e-a21ad9723c98',-1,NULL,'fee',1000,1795889159882);
INSERT INTO "ledger" VALUES(72,'01a22355-ded4-7a71-b9fa-0466475fd96c',1,NULL,'charge',-1100,1795889159971);
INSERT INTO "ledger" VALUES(73,'01a22355-ded4-7a71-b9fa-0466475fd96c',1,1,'reward',100,1795889159971);
INSERT INTO "ledger" VALUES(74,'01a22355-ded4-7a71-b9fa-0466475fd96c',-1,NULL,'fee',1000,1795889159971);
INSERT INTO "ledger" VALUES(75,'01a22355-ded4-7a71-b9fa-0466475fd96c',-1,NULL,'forgiven',-979,1795889159971);
INSERT INTO "ledger" VALUES(76,'01a22355-ded4-7a71-b9fa-0466475fd96c',1,NULL,'forgiven',979,1795889159971);
INSERT INTO "ledger" VALUES(77,'01a22355-df5b-714f-9120-417c0e66158d',1,NULL,'charge',-1100,1795889160049);
INSERT INTO "ledger" VALUES(78,'01a22355-df5b-714f-9120-417c0e66158d',1,1,'reward',100,1795889160049);
INSERT INTO "ledger" VALUES(79,'01a22355-df5b-714f-9120-417c0e66158d',-1,NULL,'fee',1000,1795889160049);
INSERT INTO "ledger" VALUES(80,'01a22355-df5b-714f-9120-417c0e66158d',-1,NULL,'forgiven',-1000,1795889160049);
INSERT INTO "ledger" VALUES(81,'01a22355-df5b-714f-9120-417c0e66158d',1,NULL,'forgiven',1000,1795889160049);
INSERT INTO "ledger" VALUES(82,'01a22355-dfa3-7b90-a0e1-82dfc6008a60',1,NULL,'charge',-1100,1795889160160);
INSERT INTO "ledger" VALUES(83,'01a22355-dfa3-7b90-a0e1-82dfc6008a60',1,1,'reward',100,1795889160160);
INSERT INTO "ledger" VALUES(84,'01a22355-dfa3-7b90-a0e1-82dfc6008a60',-1,NULL,'fee',1000,1795889160160);
INSERT INTO "ledger" VALUES(85,'01a22355-dfa3-7b90-a0e1-82dfc6008a60',-1,NULL,'forgiven',-1000,1795889160160);
INSERT INTO "ledger" VALUES(86,'01a22355-dfa3-7b90-a0e1-82dfc6008a60',1,NULL,'forgiven',1000,1795889160160);
INSERT INTO "ledger" VALUES(87,'01a22355-dfe7-786c-ae3e-7f1b3ded4221',-1,NULL,'request',1000,1795889160167);
INSERT INTO "ledger" VALUES(88,'01a22355-dfe7-786c-ae3e-7f1b3ded4221',1,NULL,'request',-1000,1795889160167);
INSERT INTO "ledger" VALUES(89,'01a22355-dfe7-786c-ae3e-7f1b3ded4221',-1,NULL,'forgiven',-900,1795889160167);
INSERT INTO "ledger" VALUES(90,'01a22355-dfe7-786c-ae3e-7f1b3ded4221',1,NULL,'forgiven',900,1795889160167);
INSERT INTO "ledger" VALUES(91,'01a22355-dfe6-7499-ae11-daf50c49e839',1,NULL,'charge',-2141,1795889160311);
INSERT INTO "ledger" VALUES(92,'01a22355-dfe6-7499-ae11-daf50c49e839',1,1,'reward',1141,1795889160311);
INSERT INTO "ledger" VALUES(93,'01a22355-dfe6-7499-ae11-daf50c49e839',-1,NULL,'fee',1000,1795889160311);
INSERT INTO "ledger" VALUES(94,'01a22355-dfe6-7499-ae11-daf50c49e839',-1,NULL,'forgiven',-2141,1795889160311);
INSERT INTO "ledger" VALUES(95,'01a22355-dfe6-7499-ae11-daf50c49e839',1,NULL,'forgiven',2141,1795889160311);
INSERT INTO "ledger" VALUES(96,'01a22355-e08a-7193-beb8-2da4cb4bbe76',-1,NULL,'request',1000,1795889160330);
INSERT INTO "ledger" VALUES(97,'01a22355-e08a-7193-beb8-2da4cb4bbe76',1,NULL,'request',-1000,1795889160330);
INSERT INTO "ledger" VALUES(98,'01a22355-e089-7e47-9d65-003ab2196976',1,NULL,'charge',-1100,1795889160404);
INSERT INTO "ledger" VALUES(99,'01a22355-e089-7e47-9d65-003ab2196976',1,1,'reward',100,1795889160404);
INSERT INTO "ledger" VALUES(100,'01a22355-e089-7e47-9d65-003ab2196976',-1,NULL,'fee',1000,1795889160404);
INSERT INTO "ledger" VALUES(101,'01a22355-e089-7e47-9d65-003ab2196976',-1,NULL,'forgiven',-959,1795889160404);
INSERT INTO "ledger" VALUES(102,'01a22355-e089-7e47-9d65-003ab2196976',1,NULL,'forgiven',959,1795889160404);
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
INSERT INTO "made" VALUES(1,'text','demo-text',1795889158000,1,12,12,11,100,1,0,1,10,11);
INSERT INTO "made" VALUES(2,'text','demo-text',1795889158000,1,12,12,85,100,1,0,1,44,85);
INSERT INTO "made" VALUES(3,'text','demo-text',1795889158000,1,12,12,81,100,1,0,1,41,81);
INSERT INTO "made" VALUES(4,'text','demo-text',1795889158000,1,12,12,99,100,1,0,1,58,99);
INSERT INTO "made" VALUES(5,'text','demo-text',1795889158000,1,60,21,89,100,1,0,1,89,89);
INSERT INTO "made" VALUES(6,'text','demo-text',1795889158000,1,12,12,81,100,1,0,1,41,81);
INSERT INTO "made" VALUES(7,'text','demo-text',1795889158000,1,16,16,85,100,1,0,1,41,85);
INSERT INTO "made" VALUES(8,'text','demo-text',1795889158000,1,16,16,89,100,1,0,1,46,89);
INSERT INTO "made" VALUES(9,'text','demo-text',1795889158000,1,12,12,84,100,1,0,1,40,84);
INSERT INTO "made" VALUES(10,'text','demo-text',1795889158000,1,12,12,82,100,1,0,1,82,82);
INSERT INTO "made" VALUES(11,'text','demo-text',1795889158000,0,0,0,0,0,1,0,1,1,1);
INSERT INTO "made" VALUES(12,'text','demo-text',1795889159000,1,12,12,88,100,1,0,1,44,88);
INSERT INTO "made" VALUES(13,'text','demo-text',1795889159000,0,0,0,0,0,1,0,1,37,37);
INSERT INTO "made" VALUES(14,'image','demo-image',1795889159000,1,1966080,1966080,312,3121,1,0,1,312,312);
INSERT INTO "made" VALUES(15,'video','demo-video',1795889159000,1,69632,69632,229,133,1,0,1,229,229);
INSERT INTO "made" VALUES(16,'audio','demo-music',1795889159000,1,2,2,99,666,1,0,1,99,99);
INSERT INTO "made" VALUES(17,'text','demo-speech',1795889159000,0,0,0,0,0,1,0,1,125,125);
INSERT INTO "made" VALUES(18,'text','demo-speech',1795889159000,0,0,0,0,0,1,0,1,79,79);
INSERT INTO "made" VALUES(19,'text','demo-hearing',1795889160000,0,0,0,0,0,1,0,1,20,22);
INSERT INTO "made" VALUES(20,'text','demo-hearing',1795889160000,0,0,0,0,0,1,0,1,18,61);
INSERT INTO "made" VALUES(21,'image','demo-image',1795889160000,1,131072,131072,145,1141,1,0,1,145,145);
INSERT INTO "made" VALUES(22,'text','demo-text',1795889160000,1,16,16,75,100,1,0,1,31,75);
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
INSERT INTO "postings" VALUES('01a22355-d612-71df-ba41-6b6011c55510','start','',NULL,'start : -1 -14000, 1 14000',1795889157650);
INSERT INTO "postings" VALUES('01a22355-dfe7-786c-ae3e-7f1b3ded4221','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1795889160167);
INSERT INTO "postings" VALUES('01a22355-e08a-7193-beb8-2da4cb4bbe76','request','1 accepted',NULL,'request 1 accepted: -1 1000, 1 -1000',1795889160330);
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
INSERT INTO "requests" VALUES('01a22355-dfe6-7676-877d-1f7addbe58d9',1,'image','{"request":{"prompt":"a red circle","params":{"n":1,"image_is_control":false,"return_control_map":false,"sampler_name":"k_euler_a","cfg_scale":5.0,"height":256,"width":256,"karras":true,"tiling":false,"hires_fix":false,"transparent":false,"steps":2,"seed":"1"},"nsfw":true,"trusted_workers":false,"validated_backends":false,"slow_workers":true,"extra_slow_workers":false,"censor_nsfw":true,"worker_blacklist":false,"models":["demo-image"],"source_processing":"img2img","r2":true,"shared":false,"replacement_filter":true,"dry_run":false,"disable_batching":false,"allow_downgrade":false},"jobs":["01a22355-dfe6-7499-ae11-daf50c49e839"],"seed":1656747888,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1795889160167,1795889760166,0,1000,1);
INSERT INTO "requests" VALUES('01a22355-e089-7c49-8cc9-912e9b3f6c04',1,'text','{"request":{"prompt":"Muster is","params":{"max_context_length":256,"max_length":16,"dynatemp_exponent":1.0},"trusted_workers":false,"validated_backends":false,"slow_workers":true,"worker_blacklist":false,"models":["demo-text"],"dry_run":false,"disable_batching":false,"allow_downgrade":false,"extra_slow_workers":false},"jobs":["01a22355-e089-7e47-9d65-003ab2196976"],"seed":1480843450,"shared_key":null,"by":{"account":1,"key":1,"shared_key":null}}',1795889160330,1795890360329,0,1000,1);
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
INSERT INTO "results" VALUES('01a22355-dfe6-7499-ae11-daf50c49e839','01a22355-dfe6-7676-877d-1f7addbe58d9',1,'demo-image','delivered','stop','{"index":0,"seed":1,"key":"results/01a22355-dfe6-7499-ae11-daf50c49e839-1.webp","content_type":"image/webp","sha256":"3070a5771a9bd0aa556ffa7fc3ee986e5f0686a6e60301beac9571e105566259","size":[256,256]}',2141,2141);
INSERT INTO "results" VALUES('01a22355-e089-7e47-9d65-003ab2196976','01a22355-e089-7c49-8cc9-912e9b3f6c04',1,'demo-text','delivered','length','ensedTensedTensors and GGUF dG',1100,959);
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
INSERT INTO "rigs" VALUES(1,'','','',1,0,'[]','',0,0,0,1795889157957,'',0,'',0,NULL,0,22,0,6661,0,447,599433);
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
INSERT INTO "settings" VALUES('secret_check','8ebbb2acb2a6657b3635ecd9defbdee56095b6d311f5a560931e7368085ec60b');
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
INSERT INTO "settled" VALUES('01a22355-d7bb-7a63-9dcd-a869350abe5b','01a22355-d7b8-7c80-96ae-0b79cb8d0fbd',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889158075,0,10,11,NULL);
INSERT INTO "settled" VALUES('01a22355-d7e3-7252-b587-bf3991759e11','01a22355-d7e2-729c-8be6-2654299af778',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889158115,0,44,85,NULL);
INSERT INTO "settled" VALUES('01a22355-d83f-771a-9429-7fbb04c6048d','01a22355-d83e-7661-91d8-5496da98a405',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889158207,0,41,81,NULL);
INSERT INTO "settled" VALUES('01a22355-d899-7166-ac05-5c6bfce08fca','01a22355-d898-7029-bcc1-a36cdf920750',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889158297,0,58,99,NULL);
INSERT INTO "settled" VALUES('01a22355-d903-75d1-b93b-346c47c89d19','01a22355-d903-7213-a42b-77ebdc55b8ea',1,1,'text','demo-text','delivered','tool_calls',1,22,21,21,100,1100,1795889158403,0,89,89,NULL);
INSERT INTO "settled" VALUES('01a22355-d962-7e05-beaa-1e5f91646e09','01a22355-d962-781b-9539-3882a4b4deba',1,1,'text','demo-text','delivered','length',1,2,12,12,100,1100,1795889158498,0,41,81,NULL);
INSERT INTO "settled" VALUES('01a22355-d9ba-7d30-8a83-c66fb942dc6e','01a22355-d9ba-77d9-8a37-9101c2511d12',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1795889158586,0,41,85,NULL);
INSERT INTO "settled" VALUES('01a22355-da17-7f3f-943d-ce8bc0176fad','01a22355-da16-7aba-883d-c7e498b1483b',1,1,'text','demo-text','delivered','length',1,8,16,16,100,1100,1795889158679,0,46,89,NULL);
INSERT INTO "settled" VALUES('01a22355-da77-7260-8b51-556e8b4986d5','01a22355-da77-73ab-9eca-177d53f7c451',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889158776,0,40,84,NULL);
INSERT INTO "settled" VALUES('01a22355-dad2-7cd2-b0bc-ef8cbe939f73','01a22355-dad1-786c-aab4-9d47e666b340',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889158866,0,82,82,NULL);
INSERT INTO "settled" VALUES('01a22355-db2a-7bdc-af90-291bfd5e8ffe','01a22355-db29-7f6e-b94f-224decd91baf',1,1,'text','demo-text','delivered','stop',1,8,0,0,0,0,1795889158954,0,1,1,NULL);
INSERT INTO "settled" VALUES('01a22355-db30-785f-8b7f-25b91d0308ba','01a22355-db2f-79e8-ac6c-6e35a4194195',1,1,'text','demo-text','delivered','length',1,8,12,12,100,1100,1795889158960,0,44,88,NULL);
INSERT INTO "settled" VALUES('01a22355-db90-7edf-8e42-b0c57d3ec524','01a22355-db8f-71a9-abc3-a305db6f6a68',1,1,'text','demo-text','delivered','stop',1,4,0,0,0,0,1795889159056,0,37,37,NULL);
INSERT INTO "settled" VALUES('01a22355-dbbb-7d05-89b6-6b1cd298b8c4','01a22355-dbba-7fd4-aa55-98cf0111b3b9',1,1,'image','demo-image','delivered','stop',1,0,0,0,3121,4121,1795889159099,0,312,312,NULL);
INSERT INTO "settled" VALUES('01a22355-dcf8-794c-9a45-f732b8e39aaf','01a22355-dcf8-72e8-9c8a-0a3492410073',1,1,'video','demo-video','delivered','stop',1,0,0,0,133,1133,1795889159416,0,229,229,NULL);
INSERT INTO "settled" VALUES('01a22355-dde2-7256-b24b-c98bca83fd71','01a22355-dde2-7318-b56c-8f70b82b202b',1,1,'audio','demo-music','delivered','stop',1,0,0,0,666,1666,1795889159650,0,99,99,NULL);
INSERT INTO "settled" VALUES('01a22355-de4d-74db-881e-a21ad9723c98','01a22355-de4d-75e5-96ee-0e143a504b85',1,1,'text','demo-speech','delivered','stop',1,32,0,0,100,1100,1795889159757,0,125,125,NULL);
INSERT INTO "settled" VALUES('01a22355-ded4-7a71-b9fa-0466475fd96c','01a22355-ded3-762b-a5cf-51f98713613b',1,1,'text','demo-speech','delivered','stop',1,32,0,0,100,1100,1795889159892,0,79,79,NULL);
INSERT INTO "settled" VALUES('01a22355-df5b-714f-9120-417c0e66158d','01a22355-df2d-7c88-9e07-3fadc29e9f6d',1,1,'text','demo-hearing','delivered','stop',1,108,0,0,100,1100,1795889160027,0,20,22,NULL);
INSERT INTO "settled" VALUES('01a22355-dfa3-7b90-a0e1-82dfc6008a60','01a22355-df76-770b-8b25-827f5b4bc8d7',1,1,'text','demo-hearing','delivered','stop',1,108,0,0,100,1100,1795889160099,0,18,61,NULL);
INSERT INTO "settled" VALUES('01a22355-dfe6-7499-ae11-daf50c49e839','01a22355-dfe6-7676-877d-1f7addbe58d9',1,1,'image','demo-image','delivered','stop',1,0,0,0,1141,2141,1795889160166,0,145,145,NULL);
INSERT INTO "settled" VALUES('01a22355-e089-7e47-9d65-003ab2196976','01a22355-e089-7c49-8cc9-912e9b3f6c04',1,1,'text','demo-text','delivered','length',1,2,16,16,100,1100,1795889160329,0,31,75,NULL);
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
INSERT INTO "workers" VALUES(1,'8fc63ac8-f41f-46b4-891d-17b35d0fbc6d','rig',1,0,1795889157957);
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
