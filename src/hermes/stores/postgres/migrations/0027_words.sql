-- One word each: an API key has scopes, and OpenAI clients come by `completions`, as the scope, the route and the settings say.

alter table api_keys rename column doors to scopes;

update user_channels set platform = 'completions' where platform = 'door';
update conversations set platform = 'completions' where platform = 'door';
update calls set source = 'completions' where source = 'door';
