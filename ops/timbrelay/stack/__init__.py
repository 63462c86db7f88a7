"""The local stack: Postgres, Valkey, the relay, workers and Celery as processes under one supervisor."""
