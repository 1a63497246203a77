{{/* Peers of network policies. Pools' pods may be in other namespaces where the operator watches all. */}}
{{- define "pando.workersPeer" -}}
- podSelector:
    matchExpressions:
      - key: pando.dev/pool
        operator: Exists
  {{- if .Values.operator.watchAllNamespaces }}
  namespaceSelector: {}
  {{- end }}
{{- end -}}

{{- define "pando.scrapers" -}}
{{- with .Values.networkPolicy.scrapers -}}
{{ toYaml . }}
{{- else -}}
- namespaceSelector: {}
{{- end -}}
{{- end -}}

{{- define "pando.dnsEgress" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end -}}

{{/* To the bundled Redis, and wherever else the values say. */}}
{{- define "pando.commonEgress" -}}
{{ include "pando.dnsEgress" . }}
{{- if not .Values.redis.external.existingSecret }}
- to:
    - podSelector:
        matchLabels:
          {{- include "pando.selector" (list . "redis") | nindent 10 }}
  ports:
    - port: 6379
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pando.httpsEgress" -}}
- ports:
    {{- range .Values.networkPolicy.httpsPorts }}
    - port: {{ . }}
    {{- end }}
{{- end -}}
