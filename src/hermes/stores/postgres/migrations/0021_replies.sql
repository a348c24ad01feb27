-- Where several people talk, an answer names the message that it answers.

alter table outbox add column reply_to text;
