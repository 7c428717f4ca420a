-- Redis and Valkey run scripts on Lua 5.1; these are the globals they give.
std = "lua51"
read_globals = { "redis", "cjson", "cmsgpack", "struct", "bit", "KEYS", "ARGV" }
max_line_length = 100
