{{/* The commands of a user for a tenant's workers: those of docs/redis.md, without Redis Cluster's. */}}
{{- define "pando.redisCommands" -}}
+auth +hello +select +evalsha +script|load +info +time +del +unlink +persist +expire +pexpire +pttl +hget +hset +hsetnx +hdel +hmget +hgetall +hlen +zadd +zincrby +zrem +zcard +zscan +zscore +zmscore +zrange +zrevrange +zrangebyscore +zremrangebyrank +zremrangebyscore +zpopmin
{{- end -}}

{{/* Configuration and scripts of the bundled Redis. */}}
{{- define "pando.redisFiles" -}}
redis.conf: |
  dir /data
  port 6379
  protected-mode no
  maxmemory {{ .Values.redis.maxmemory }}
  # Trees make room before Redis reaches this limit. If it does, it may evict only keys with a TTL: trees, which are
  # nearly all of the memory, rate limits, remembered responses, and marks, which the operator writes again. The keys
  # by which replicas and requests are found have none. Evicted keys are freed at once: Valkey 9 does not count
  # lazily freed memory as free and would evict nearly everything.
  maxmemory-policy volatile-lru
  lazyfree-lazy-eviction no
  save ""
  appendonly {{ .Values.redis.persistence.enabled | ternary "yes" "no" }}
# The password goes from a file to standard input: ps would show arguments.
start.sh: |
  set -eu
  server=$(command -v valkey-server || command -v redis-server)
  password=$(cat /run/secrets/redis/password)
  previous=$(cat /run/secrets/redis/previous-password 2>/dev/null || true)
  (umask 077 && printf %s "$password" >/tmp/password)
  {{- range $number, $namespace := .Values.redis.auth.tenants }}
  tenant_{{ $number }}=$(cat /run/secrets/redis/tenant-{{ $namespace }})
  {{- end }}
  exec "$server" /etc/redis/redis.conf - <<END
  user default on >$password ${previous:+>$previous} ~* &* +@all
  {{- range $number, $namespace := .Values.redis.auth.tenants }}
  user {{ $namespace }} on >$tenant_{{ $number }} resetchannels ~pando:{ {{- $namespace -}} /*}:* ~pando:pools ~pando:pools:* {{ include "pando.redisCommands" $ }}
  {{- end }}
  END
# Uses the password that the server started with, so that a changed Secret does not fail the probe.
ready.sh: |
  set -eu
  cli=$(command -v valkey-cli || command -v redis-cli)
  REDISCLI_AUTH=$(cat /tmp/password)
  export REDISCLI_AUTH
  [ "$("$cli" ping)" = PONG ]
{{- end -}}
