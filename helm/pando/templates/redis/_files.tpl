{{/* What the bundled Redis is started with. */}}
{{- define "pando.redisFiles" -}}
redis.conf: |
  dir /data
  port 6379
  protected-mode no
  maxmemory {{ .Values.redis.maxmemory }}
  # Trees make room before this is reached. Should it be all the same, only keys with a TTL may go, one by
  # one: lazily freed, Valkey 9 counts none of them as free yet and evicts nearly everything.
  maxmemory-policy volatile-lru
  lazyfree-lazy-eviction no
  save ""
  appendonly {{ .Values.redis.persistence.enabled | ternary "yes" "no" }}
# The password comes from a file by standard input: arguments could be read with ps.
start.sh: |
  set -eu
  server=$(command -v valkey-server || command -v redis-server)
  password=$(cat /run/secrets/redis/password)
  previous=$(cat /run/secrets/redis/previous-password 2>/dev/null || true)
  (umask 077 && printf %s "$password" >/tmp/password)
  exec "$server" /etc/redis/redis.conf - <<END
  user default on >$password ${previous:+>$previous} ~* &* +@all
  END
# By the password that the server was started with: a Secret that changes takes no server down.
ready.sh: |
  set -eu
  cli=$(command -v valkey-cli || command -v redis-cli)
  REDISCLI_AUTH=$(cat /tmp/password)
  export REDISCLI_AUTH
  [ "$("$cli" ping)" = PONG ]
{{- end -}}
