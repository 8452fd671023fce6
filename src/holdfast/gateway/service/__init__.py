"""The gateway over HTTP, for stock OpenAI and Anthropic clients."""
