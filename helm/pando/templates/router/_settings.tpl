{{/* The router's settings file. */}}
{{- define "pando.routerSettings" -}}
{{- $settings := dict "host" "::" "port" 8000 -}}
{{- /* Routers are ready and let requests wait before the first worker exists. */ -}}
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
{{- with .Values.router.recording -}}
{{- $_ := set $settings "record_on" .enabled -}}
{{- $_ := set $settings "record_days" .days -}}
{{- $files := 8 -}}
{{- $_ := set $settings "record_files" $files -}}
{{- $_ := set $settings "record_file_bytes" (divf (mulf .gib 1073741824) $files | int64) -}}
{{- end -}}
{{- $drain := dict "drain_seconds" (include "pando.drainSeconds" . | float64) -}}
{{- toYaml (merge $settings (deepCopy (.Values.router.settings | default dict)) $drain) -}}
{{- end -}}

{{/* The settings that need a restart, as text that changes with them. */}}
{{- define "pando.routerFixedSettings" -}}
{{- $fixed := list "admin_key" "api_keys" "explain_last" "host" "hot_prefix_bytes" "metrics_need_key" "migrate_memory_bytes" "otlp_endpoint" "port" "processes" "record" "record_days" "record_file_bytes" "record_files" "record_secret" "redis" "trace_sample" -}}
{{- $settings := include "pando.routerSettings" . | fromYaml -}}
{{- range $fixed -}}
{{- if hasKey $settings . }}{{ . }}={{ index $settings . | toJson }} {{ end -}}
{{- end -}}
{{- end -}}

{{/* How long a router that ends waits for its streams: as long as a worker of any pool. A pool that sets nothing,
and one that is not in these values, has the default of spec.scaling.drain.timeoutSeconds. */}}
{{- define "pando.drainSeconds" -}}
{{- $longest := 300 -}}
{{- range $name, $spec := .Values.pools -}}
{{- $longest = max $longest (dig "scaling" "drain" "timeoutSeconds" 0 $spec) -}}
{{- end -}}
{{ $longest }}
{{- end -}}

{{/* Seconds from SIGTERM until a router is killed: longer than leaving and draining together. */}}
{{- define "pando.routerGrace" -}}
{{- $settings := include "pando.routerSettings" . | fromYaml -}}
{{- add (ceil (dig "leave_seconds" 5 $settings)) (ceil $settings.drain_seconds) 15 -}}
{{- end -}}

{{/* Secret with the files of API keys; empty: requests need no key. */}}
{{- define "pando.keySecret" -}}
{{- if and .Values.auth.existingSecret .Values.auth.tenants -}}
{{- fail "auth.existingSecret and auth.tenants exclude each other: set one of them" -}}
{{- end -}}
{{- if .Values.auth.existingSecret -}}
{{ .Values.auth.existingSecret }}
{{- else if .Values.auth.tenants -}}
{{ include "pando.fullname" . }}-api-keys
{{- end -}}
{{- end -}}

{{/* Number of routers; empty: the autoscaler sets it. If the release stopped applying the field, the API server
would reset it to one pod. So while the release owns the field, it applies the current number. */}}
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
