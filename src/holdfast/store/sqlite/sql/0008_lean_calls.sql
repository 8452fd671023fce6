-- Two indexes less for every call to write: each costs a call some 20 µs.
--
-- `calls_summed` begins with the time as well, so that calls by time are read from it. It has the
-- model too: the calls of one model are found by going through it, which for a model that was
-- hardly ever asked takes 0.1 s in a million calls.

DROP INDEX calls_by_time;
DROP INDEX calls_by_model;
