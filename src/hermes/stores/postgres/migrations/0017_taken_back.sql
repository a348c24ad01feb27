-- What somebody took back is shown to no model again.

alter table sessions add column ended_at timestamptz;  -- nobody goes on with it, however short the silence was
alter table users add column shown_from timestamptz;   -- what they said before then is no longer told across sessions; null: all of it is
