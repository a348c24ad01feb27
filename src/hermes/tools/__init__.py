"""Tools that a model may use.

parameters     a tool's JSON schema from its signature, and the reading of arguments
registry       a tool: a typed async function with its effect and its reach
schema_sets    the schemas of tools, made once for each set that is offered
executor       runs calls: each effect once, in time, with a clean result
gate           chooses the tools that go with a message
vocabulary     finds words of sixteen languages in a text
memory         the tools of the memory
mcp            tools of MCP servers
no_tools       a Hermes without tools
images         a user's picture in the prompt, and what the user wants of it
image_headers  type and size of a picture, from its bytes

Knows nothing about stores: a tool gets its services as ports, which `hermes.app` hands over."""
