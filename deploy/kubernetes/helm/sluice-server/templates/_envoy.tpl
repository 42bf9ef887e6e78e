{{- define "sluice.envoy" -}}
- name: envoy
  image: {{ .Values.gateway.envoy.image }}
  args: [--config-path, /etc/envoy/envoy.yaml, --concurrency, "2", --log-level, warning]
  ports:
    - {name: inference, containerPort: 8080}
    - {name: envoy, containerPort: 8081}
  livenessProbe:
    tcpSocket: {port: envoy}
    periodSeconds: 10
    timeoutSeconds: 5
  readinessProbe:
    httpGet: {path: /ready, port: envoy}
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 2
  lifecycle:
    preStop: {sleep: {seconds: {{ .Values.pick.drainSeconds }}}}
  resources:
    {{- toYaml .Values.gateway.envoy.resources | nindent 4 }}
  securityContext:
    {{- include "sluice.confined" . | nindent 4 }}
  volumeMounts:
    - {name: envoy, mountPath: /etc/envoy, readOnly: true}
{{- end }}
