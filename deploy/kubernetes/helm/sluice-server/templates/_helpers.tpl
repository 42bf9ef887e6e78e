{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "sluice.meta" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "sluice.labels" . | nindent 2 }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
  {{- with .more }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Of a container: no more rights than it started with, and nothing to write to. */ -}}
{{- define "sluice.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* A program's flags: those of the chart (`own`), then those of the values (`args`). One that the values give, too,
       is theirs alone, because a program does not start with a flag given twice. Lists may be. */ -}}
{{- define "sluice.args" -}}
{{- $lists := list "model-repository" "http" "grpc" "health" }}
{{- $given := dict }}
{{- range .args }}
{{- $name := regexFind "^--[^=]+" . | trimPrefix "--" | replace "exit-timeout-secs" "drain-timeout" }}
{{- $_ := set $given $name true }}
{{- end }}
{{- range .own }}
{{- $name := regexFind "^--[^=]+" . | trimPrefix "--" }}
{{- if or (has $name $lists) (not (hasKey $given $name)) }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- with .args }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What both pods say of themselves, beside their containers. */ -}}
{{- define "sluice.pod" -}}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ add .values.preStopSeconds .values.drainSeconds 10 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "sluice.labels" . | nindent 8 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "sluice.podmeta" -}}
labels:
  {{- include "sluice.labels" . | nindent 2 }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What the sidecar reads, once: another name with other contents starts new pods, as kustomize does it. */ -}}
{{- define "sluice.envoyconfig" -}}
{{ .Files.Get "files/envoy.yaml" | replace "sluice-serve" (printf "%s-serve" .Release.Name) }}
{{- end }}
{{- define "sluice.envoyname" -}}
{{ .Release.Name }}-envoy-{{ include "sluice.envoyconfig" . | sha256sum | trunc 10 }}
{{- end }}

{{- define "sluice.gateway" -}}
{{ .Values.gateway.name | default .Release.Name }}
{{- end }}
