{{/* The router's settings file. */}}
{{- define "pando.routerSettings" -}}
{{- $settings := dict "host" "0.0.0.0" "port" 8000 -}}
{{- /* So requests wait for the pools, and routers are ready, before there is a first worker. */ -}}
{{- $expected := dict -}}
{{- range $name, $spec := .Values.pools -}}
{{- $_ := set $expected $name (include "pando.modelName" $spec) -}}
{{- end -}}
{{- with $expected -}}
{{- $_ := set $settings "expected_pools" . -}}
{{- end -}}
{{- if include "pando.keySecret" . -}}
{{- $_ := set $settings "api_keys" "/etc/pando/keys" -}}
{{- end -}}
{{- toYaml (merge $settings (deepCopy .Values.router.settings)) -}}
{{- end -}}

{{/* Of these settings, those that a running router does not take over: as text that changes with them. */}}
{{- define "pando.routerFixedSettings" -}}
{{- $fixed := list "api_keys" "explain_last" "host" "hot_prefix_bytes" "metrics_need_key" "migrate_memory_bytes" "otlp_endpoint" "port" "processes" "redis" "trace_sample" -}}
{{- $settings := include "pando.routerSettings" . | fromYaml -}}
{{- range $fixed -}}
{{- if hasKey $settings . }}{{ . }}={{ index $settings . | toJson }} {{ end -}}
{{- end -}}
{{- end -}}

{{/* Seconds from SIGTERM until a router is killed: longer than it may take to leave and to drain. */}}
{{- define "pando.routerGrace" -}}
{{- $settings := .Values.router.settings -}}
{{- add (ceil (dig "leave_seconds" 5 $settings)) (ceil (dig "drain_seconds" 30 $settings)) 15 -}}
{{- end -}}

{{/* Secret with the files of API keys; empty: no keys are asked for. */}}
{{- define "pando.keySecret" -}}
{{- if and .Values.auth.existingSecret .Values.auth.tenants -}}
{{- fail "auth.existingSecret and auth.tenants: only one of them can be given" -}}
{{- end -}}
{{- if .Values.auth.existingSecret -}}
{{ .Values.auth.existingSecret }}
{{- else if .Values.auth.tenants -}}
{{ include "pando.fullname" . }}-api-keys
{{- end -}}
{{- end -}}
