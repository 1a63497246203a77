{{/* The operator's settings file. */}}
{{- define "pando.operatorSettings" -}}
{{- $settings := dict
    "host" "::"
    "port" 8080
    "lease_namespace" .Release.Namespace
    "lease_name" (printf "%s-operator" (include "pando.fullname" .))
    "worker_image" (include "pando.image" (list . .Values.workers.image))
    "worker_image_pull_policy" .Values.global.image.pullPolicy
    "worker_redis_secret" (include "pando.redisSecret" .)
    "worker_redis_secret_key" (include "pando.redisKey" .)
    "worker_variables" (dict "PANDO_LOG_LEVEL" .Values.log.level "PANDO_LOG_FORMAT" .Values.log.format)
-}}
{{- if not .Values.operator.watchAllNamespaces -}}
{{- $_ := set $settings "namespaces" (list .Release.Namespace) -}}
{{- end -}}
{{- with .Values.global.image.pullSecrets -}}
{{- $names := list -}}
{{- range . -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $_ := set $settings "worker_image_pull_secrets" $names -}}
{{- end -}}
{{- toYaml (merge $settings (deepCopy (.Values.operator.settings | default dict))) -}}
{{- end -}}

{{/* Two operators for the same pools would undo each other's work, since each release has its own Lease. */}}
{{- define "pando.checkAlone" -}}
{{- $where := .Values.operator.watchAllNamespaces | ternary "" .Release.Namespace -}}
{{- if .Values.operator.replicas -}}
{{- range (lookup "apps/v1" "Deployment" $where "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $same := and (eq .metadata.namespace $.Release.Namespace) (eq (get $labels "app.kubernetes.io/instance") $.Release.Name) -}}
{{- $operator := and (hasPrefix "pando-" (get $labels "helm.sh/chart")) (eq "operator" (get $labels "app.kubernetes.io/component")) -}}
{{- if and $operator .spec.replicas (not $same) -}}
{{- fail (printf "the release %q in the namespace %q has an operator for the same pools: install this release in another namespace, or with operator.replicas=0" (get $labels "app.kubernetes.io/instance") .metadata.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
