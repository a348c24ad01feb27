"""OpenAI's chat completions, and the servers that speak them: vLLM, SGLang, llama.cpp, OpenRouter …"""
