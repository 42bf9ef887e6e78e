/* Kubeconfig files and a pod's service account: what is read, and the errors of invalid ones, which
 * contain no secrets. */
#include "pick/discovery/kube/credentials/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- files ----------------------------------------------------------------------------------- */

enum { PATH_BYTES = 128 };
static char folder[] = "/tmp/sluice-kube-config-XXXXXX";

static const char *path_of(const char *name) {
    static char paths[4][PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static const char *write_test_file(const char *name, const char *text) {
    const char *path = path_of(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static int make_folder(void **state) {
    (void)state;
    unsetenv("KUBECONFIG");
    unsetenv("KUBERNETES_SERVICE_HOST");
    unsetenv("KUBERNETES_SERVICE_PORT");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    static const char *const names[] = {"config", "other", "token", "ca.crt", "namespace"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

static struct kube_config *load_config(const struct kube_config_options *ask) {
    struct kube_config *config = NULL;
    struct error err;
    if (kube_config_load(ask, &config, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    return config;
}

static void refuse(const struct kube_config_options *ask, enum status status, const char *why) {
    struct kube_config *config = NULL;
    struct error err;
    assert_int_equal(kube_config_load(ask, &config, &err), status);
    if (!strstr(err.text, why)) {
        fail_msg("expected \"%s\" in: %s", why, err.text);
    }
    assert_null(strstr(err.text, "s3cret"));
}

/* ---- a kubeconfig ---------------------------------------------------------------------------- */

static const char FILE_OF_TWO[] = //
    "apiVersion: v1\n"
    "kind: Config\n"
    "preferences: {}\n"
    "current-context: second\n"
    "clusters:\n"
    "- name: one\n"
    "  cluster:\n"
    "    server: https://one:6443/prefix/\n"
    "    certificate-authority: pki/ca.crt\n"
    "    tls-server-name: kubernetes\n"
    "- name: two\n"
    "  cluster:\n"
    "    server: https://[::1]:6443\n"
    "    insecure-skip-tls-verify: true\n"
    "    certificate-authority-data: aGVs\n      bG8=\n"
    "    certificate-authority: /not/looked/at\n"
    "    extensions:\n"
    "    - name: client.authentication.k8s.io/exec\n"
    "      extension: {audience: [a]}\n"
    "contexts:\n"
    "- name: first\n"
    "  context: {cluster: one, user: a, namespace: apps}\n"
    "- name: second\n"
    "  context: {cluster: two, user: b}\n"
    "users:\n"
    "- name: a\n"
    "  user:\n"
    "    client-certificate: /abs/client.crt\n"
    "    client-key-data: a2V5\n"
    "    as: somebody\n"
    "    as-groups: [x, y]\n"
    "- name: b\n"
    "  user:\n"
    "    token: s3cret\n"
    "    tokenFile: token\n";

static void config_context_selects_cluster_and_user(void **state) {
    (void)state;
    const char *file = write_test_file("config", FILE_OF_TWO);
    write_test_file("token", "  from-the-file\n");
    struct kube_config *config = load_config(&(struct kube_config_options){.kubeconfig = file});
    assert_string_equal(kube_config_server(config), "https://[::1]:6443");
    assert_null(kube_config_namespace(config));
    assert_true(config->insecure);
    assert_string_equal(config->ca.text, "hello");
    assert_null(config->ca.path);
    assert_string_equal(config->token.text, "s3cret");
    assert_string_equal(config->token.path, path_of("token"));
    assert_string_equal(config->extension, "{\"audience\":[\"a\"]}");
    kube_config_free(config);
    config =
        load_config(&(struct kube_config_options){.kubeconfig = file, .kube_context = "first"});
    assert_string_equal(kube_config_server(config), "https://one:6443/prefix");
    assert_string_equal(kube_config_namespace(config), "apps");
    assert_string_equal(config->tls_name, "kubernetes");
    assert_string_equal(config->ca.path, path_of("pki/ca.crt"));
    assert_string_equal(config->cert.path, "/abs/client.crt");
    assert_string_equal(config->key.text, "key");
    assert_int_equal(config->n_fields, 3);
    assert_string_equal(config->fields[0], "Impersonate-User: somebody");
    assert_string_equal(config->fields[2], "Impersonate-Group: y");
    kube_config_free(config);
}

/* Of several files the first with a name is used. */
static void config_first_file_with_name_counts(void **state) {
    char paths[3 * PATH_BYTES];
    (void)state;
    write_test_file("config", FILE_OF_TWO);
    write_test_file("other", "current-context: third\n"
                             "contexts: [{name: third, context: {cluster: one, user: c}},"
                             " {name: first, context: {cluster: none, user: none}}]\n"
                             "users: [{name: c, user: {username: me, password: s3cret}}]\n");
    snprintf(paths, sizeof(paths), "%s:%s:%s", path_of("missing"), path_of("config"),
             path_of("other"));
    setenv("KUBECONFIG", paths, 1);
    struct kube_config *config =
        load_config(&(struct kube_config_options){.kube_context = "third"});
    assert_string_equal(kube_config_server(config), "https://one:6443/prefix");
    assert_string_equal(config->basic, "Authorization: Basic bWU6czNjcmV0");
    kube_config_free(config);
    config = load_config(&(struct kube_config_options){.kube_context = NULL});
    assert_string_equal(kube_config_server(config), "https://[::1]:6443");
    kube_config_free(config);
    setenv("KUBECONFIG", path_of("missing"), 1);
    refuse(&(struct kube_config_options){.kubeconfig = NULL}, ST_IO, "none of the files exists");
    unsetenv("KUBECONFIG");
}

#define USER(user)                                                                                 \
    "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"                  \
    "clusters: [{name: c, cluster: {server: 'https://a'}}]\nusers:\n- name: u\n  user: " user "\n"
#define CLUSTER(cluster)                                                                           \
    "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"                  \
    "users: [{name: u, user: {}}]\nclusters:\n- name: c\n  cluster: " cluster "\n"
#define EXEC(exec) USER("{exec: {apiVersion: client.authentication.k8s.io/v1, " exec "}}")

static void config_invalid_refused(void **state) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "there is no current-context"},
        {"- a\n", "expected an object"},
        {"current-context: x\n", "there is no context of the name \"x\""},
        {"current-context: x\ncontexts: {name: x}\n", "expected the name of a cluster"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n",
         "there is no cluster of the name \"c\""},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
         "clusters: [{name: c}]\n",
         "expected an object \"cluster\" in it"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
         "clusters: [{name: c, cluster: {server: 'https://a'}}]\n",
         "there is no user of the name \"u\""},
        {CLUSTER("{}"), "expected the server's URL"},
        {CLUSTER("{server: 7}"), "expected text"},
        {CLUSTER("{server: 'a:6443'}"), "begins with https:// or http://"},
        {CLUSTER("{server: 'https://me:s3cret@a'}"), "a host, a port and a path"},
        {CLUSTER("{server: 'https://'}"), "a host, a port and a path"},
        {CLUSTER("{server: 'https://a', proxy-url: 'http://b'}"), "behind a proxy"},
        {CLUSTER("{server: 'https://a', insecure-skip-tls-verify: 'yes'}"), "true or false"},
        {CLUSTER("{server: 'https://a', certificate-authority-data: 's3cret!'}"),
         "config:6: clusters[0].cluster.certificate-authority-data: expected base64"},
        {USER("{token: [s3cret]}"), "config:6: users[0].user.token: expected text"},
        {USER("{token: 12345}"), "expected text"},
        {USER("{client-key-data: 's3cret?'}"), "users[0].user.client-key-data: expected base64"},
        {USER("{password: s3cret, token: a}"), "a token or a password"},
        {USER("{auth-provider: {name: gcp}}"), "name a program for it under \"exec\""},
        {USER("{exec: {command: a}}"), "expected the apiVersion client.authentication.k8s.io/v1"},
        {USER("{exec: {command: a, apiVersion: client.authentication.k8s.io/v1alpha1}}"),
         "expected the apiVersion"},
        {EXEC("args: [a]"), "expected the name of a program"},
        {EXEC("command: a, args: [{s3cret: 1}]"), "exec.args[0]: expected text"},
        {EXEC("command: a, env: [{value: s3cret}]"), "env[0]: expected the name of a variable"},
        {EXEC("command: a, interactiveMode: Always"), "needs a terminal"},
        {EXEC("command: a, interactiveMode: x"), "expected Never, IfAvailable or Always"},
        {"current-context: x\nusers: {token: \"s3cret\n", "config:"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *file = write_test_file("config", rows[i].text);
        refuse(&(struct kube_config_options){.kubeconfig = file}, ST_BAD_CONFIG, rows[i].why);
    }
    refuse(&(struct kube_config_options){.kubeconfig = path_of("missing")}, ST_IO, "missing");
}

/* ---- a pod ----------------------------------------------------------------------------------- */

static void config_of_pod_reads_service_account(void **state) {
    struct kube_config_options ask = {.service_account = folder};
    (void)state;
    unlink(path_of("token"));
    refuse(&ask, ST_BAD_CONFIG, "or to run in a pod");
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    refuse(&ask, ST_IO, "/token: ");
    write_test_file("token", "\n");
    refuse(&ask, ST_IO, "the file is empty");
    write_test_file("token", "s3cret\n");
    refuse(&ask, ST_IO, "/ca.crt: ");
    write_test_file("ca.crt", "pem");
    struct kube_config *config = load_config(&ask);
    assert_string_equal(kube_config_server(config), "https://[fd00::1]:443");
    assert_null(kube_config_namespace(config));
    assert_string_equal(config->token.text, "s3cret");
    kube_config_free(config);
    write_test_file("namespace", "apps");
    setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
    config = load_config(&ask);
    assert_string_equal(kube_config_server(config), "https://10.96.0.1:443");
    assert_string_equal(kube_config_namespace(config), "apps");
    kube_config_free(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_context_selects_cluster_and_user),
        cmocka_unit_test(config_first_file_with_name_counts),
        cmocka_unit_test(config_invalid_refused),
        cmocka_unit_test(config_of_pod_reads_service_account),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
