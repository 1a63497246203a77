{{/* Peers and rules of network policies. If the operator watches all namespaces, pools may be in any. */}}
{{- define "pando.workersPeer" -}}
- podSelector:
    matchExpressions:
      - key: pando.dev/pool
        operator: Exists
  {{- if .Values.operator.watchAllNamespaces }}
  namespaceSelector: {}
  {{- end }}
{{- end -}}

{{- define "pando.dnsEgress" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end -}}

{{/* To API server and model hub. A rule without ports would allow all ports. */}}
{{- define "pando.httpsEgress" -}}
{{- with .Values.networkPolicy.httpsPorts -}}
- ports:
    {{- range . }}
    - port: {{ . }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- define "pando.redisEgress" -}}
{{- if not .Values.redis.external.existingSecret -}}
- to:
    - podSelector:
        matchLabels:
          {{- include "pando.selector" (list . "redis") | nindent 10 }}
  ports:
    - port: 6379
{{- else if not .Values.networkPolicy.extraEgress -}}
{{- fail "networkPolicy.extraEgress is empty: it must allow connections to the Redis of redis.external" -}}
{{- end -}}
{{- end -}}

{{- define "pando.extraEgress" -}}
{{- with .Values.networkPolicy.extraEgress -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}
