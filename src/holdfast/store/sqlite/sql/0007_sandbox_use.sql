-- What sandboxes and commands used: NULL where nobody could tell, never 0 in its place.
--
-- `cpu_seconds` is user and system time; the others are bytes. Of a sandbox they are known once it
-- has stopped, and so they are not of one whose process died.

ALTER TABLE sandboxes ADD COLUMN cpu_seconds REAL;
ALTER TABLE sandboxes ADD COLUMN peak_memory INTEGER;
ALTER TABLE sandboxes ADD COLUMN disk_used INTEGER;
ALTER TABLE commands ADD COLUMN cpu_seconds REAL;
ALTER TABLE commands ADD COLUMN peak_memory INTEGER;
