-- What accounts that were wiped have left of their workers: a number may be another worker's by now.
DELETE FROM rigs WHERE worker NOT IN (SELECT id FROM workers);
DELETE FROM worker_addresses WHERE worker NOT IN (SELECT id FROM workers);
DELETE FROM worker_messages WHERE worker IS NOT NULL AND worker NOT IN (SELECT id FROM workers);
