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
{{- toYaml (merge $settings (deepCopy (.Values.router.settings | default dict))) -}}
{{- end -}}

{{/* Of these settings, those that a running router does not take over: as text that changes with them. */}}
{{- define "pando.routerFixedSettings" -}}
{{- $fixed := list "api_keys" "explain_last" "host" "hot_prefix_bytes" "metrics_need_key" "migrate_memory_bytes" "otlp_endpoint" "port" "processes" "record" "record_file_bytes" "record_files" "record_secret" "redis" "trace_sample" -}}
{{- $settings := include "pando.routerSettings" . | fromYaml -}}
{{- range $fixed -}}
{{- if hasKey $settings . }}{{ . }}={{ index $settings . | toJson }} {{ end -}}
{{- end -}}
{{- end -}}

{{/* Seconds from SIGTERM until a router is killed: longer than it may take to leave and to drain. */}}
{{- define "pando.routerGrace" -}}
{{- $settings := .Values.router.settings | default dict -}}
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

{{/* How many routers; empty: the autoscaler says. A field that a release stops to apply gets the API server's
default, and that is one pod: while the number is still the release's, the one that there is stays in it. */}}
{{- define "pando.routerReplicas" -}}
{{- if not .Values.router.autoscaling.enabled -}}
{{ .Values.router.replicas }}
{{- else -}}
{{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace (printf "%s-router" (include "pando.fullname" .)) -}}
{{- $ours := false -}}
{{- range dig "metadata" "managedFields" list $deployment -}}
{{- if and (ne (dig "subresource" "" .) "scale") (hasKey (dig "fieldsV1" "f:spec" dict .) "f:replicas") -}}
{{- $ours = true -}}
{{- end -}}
{{- end -}}
{{- if $ours -}}
{{ $deployment.spec.replicas }}
{{- end -}}
{{- end -}}
{{- end -}}
