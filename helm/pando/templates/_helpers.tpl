{{/* Names, labels, images, and fields that all pods share. */}}

{{- define "pando.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of all names; short enough for the components' suffixes. */}}
{{- define "pando.fullname" -}}
{{- $name := printf "%s-%s" .Release.Name (include "pando.name" .) -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains (include "pando.name" .) .Release.Name -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- fail (printf "the name of a Service must begin with a letter, not with %s: set fullnameOverride" $name) -}}
{{- end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that never change. Arguments: root, component. */}}
{{- define "pando.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "pando.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All labels. Arguments: root, component. */}}
{{- define "pando.labels" -}}
{{- $root := index . 0 -}}
{{ include "pando.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of pods; new versions of chart and app do not change them. Arguments: root, component. */}}
{{- define "pando.podLabels" -}}
{{ include "pando.selector" . }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Reference of an image. Arguments: root, image. */}}
{{- define "pando.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- with $root.Values.global.image.registry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") -}}
{{- end -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository ($image.tag | default $root.Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{/* The newest API version of the three kinds that changed it since Kubernetes 1.20. */}}
{{- define "pando.pdbApi" -}}
{{ semverCompare ">=1.21-0" .Capabilities.KubeVersion.Version | ternary "policy/v1" "policy/v1beta1" }}
{{- end -}}
{{/* Lets a node drain evict pods that are not ready. */}}
{{- define "pando.pdbEviction" -}}
{{- if semverCompare ">=1.27-0" .Capabilities.KubeVersion.Version -}}
unhealthyPodEvictionPolicy: AlwaysAllow
{{- end -}}
{{- end -}}
{{- define "pando.hpaApi" -}}
{{ semverCompare ">=1.23-0" .Capabilities.KubeVersion.Version | ternary "autoscaling/v2" "autoscaling/v2beta2" }}
{{- end -}}

{{/* Fields in the spec of all pods. */}}
{{- define "pando.podDefaults" -}}
enableServiceLinks: false
{{- with .Values.global.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where a component's pods may run. Arguments: root, values, component. */}}
{{- define "pando.scheduling" -}}
{{- $values := index . 1 -}}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- if hasKey $values "topologySpreadConstraints" }}
topologySpreadConstraints:
  {{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "pando.selector" (list (index $ 0) (index $ 2)) | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The restricted pod security standard, for a pod (with more fields) and for a container. */}}
{{- define "pando.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
  {{- with . }}
  {{- range $field, $value := . }}
  {{- if not (kindIs "invalid" $value) }}
  {{ $field }}: {{ toJson $value }}
  {{- end }}
  {{- end }}
  {{- end }}
{{- end -}}
{{- define "pando.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Name of the Secret with Redis' URL, and its key there. */}}
{{- define "pando.redisSecret" -}}
{{- .Values.redis.external.existingSecret | default .Values.redis.auth.existingSecret | default (printf "%s-redis" (include "pando.fullname" .)) -}}
{{- end -}}
{{- define "pando.redisKey" -}}
{{- .Values.redis.external.existingSecret | empty | ternary "url" .Values.redis.external.key -}}
{{- end -}}

{{/* Variables of router and operator. Redis' URL has a password, so it is never a flag. Arguments: root, prefix. */}}
{{- define "pando.env" -}}
{{- $root := index . 0 -}}
- name: {{ index . 1 }}_REDIS
  valueFrom:
    secretKeyRef:
      name: {{ include "pando.redisSecret" $root | quote }}
      key: {{ include "pando.redisKey" $root | quote }}
- name: PANDO_LOG_LEVEL
  value: {{ $root.Values.log.level }}
- name: PANDO_LOG_FORMAT
  value: {{ $root.Values.log.format }}
{{- end -}}

{{/* Name of a component's service account. Arguments: root, component, values. */}}
{{- define "pando.serviceAccount" -}}
{{- (index . 2).name | default (printf "%s-%s" (include "pando.fullname" (index . 0)) (index . 1)) -}}
{{- end -}}
