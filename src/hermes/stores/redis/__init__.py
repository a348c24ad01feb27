"""What Hermes keeps in Redis: budgets, breakers, signals and hot copies. All of it can be made again from PostgreSQL, or done without."""

from redis.exceptions import RedisError

REDIS_ERRORS = (RedisError, OSError, TimeoutError)
"""Redis cannot be used now."""
