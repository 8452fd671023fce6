-- One index less for every call to write: `calls_summed` begins with the time as well.

DROP INDEX calls_by_time;
