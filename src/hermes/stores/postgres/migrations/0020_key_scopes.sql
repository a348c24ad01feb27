-- What an API key opens, and where. Null: everything, everywhere in its account.

alter table api_keys add column doors text[], add column channels text[];
