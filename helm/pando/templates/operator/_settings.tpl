{{/* The operator's settings file. */}}
{{- define "pando.operatorSettings" -}}
{{- $settings := dict
    "host" "0.0.0.0"
    "port" 8080
    "namespace" (.Values.operator.watchAllNamespaces | ternary "" .Release.Namespace)
    "lease_namespace" .Release.Namespace
    "lease_name" (printf "%s-operator" (include "pando.fullname" .))
    "worker_image" (include "pando.image" (list . .Values.workers.image))
    "worker_image_pull_policy" .Values.global.image.pullPolicy
    "worker_redis_secret" (include "pando.redisSecret" .)
    "worker_redis_key" (include "pando.redisKey" .)
-}}
{{- with .Values.global.image.pullSecrets -}}
{{- $names := list -}}
{{- range . -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $_ := set $settings "worker_image_pull_secrets" $names -}}
{{- end -}}
{{- toYaml (merge $settings (deepCopy .Values.operator.settings)) -}}
{{- end -}}
