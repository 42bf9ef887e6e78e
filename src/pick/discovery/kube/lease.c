/* The last observed state of a lease, and the step that follows from it. */
#include "pick/discovery/kube/lease.h"

#include <string.h>
#include <time.h>

#include "core/base/json_writer.h"

static const uint64_t NS_PER_S = 1000000000;

/* ---- observed state -------------------------------------------------------------------------- */

/* A name that is too long can't be ours; cut off, it still differs from ours. */
static void copy_text(yyjson_val *value, char *out, size_t n_bytes) {
    struct str text = STR("");
    (void)json_get_string(value, &text);
    size_t n = strnlen(text.ptr, n_bytes - 1);
    memcpy(out, text.ptr, n);
    out[n] = '\0';
}

void kube_lease_observe(struct kube_lease *lease, const struct doc_node *object, uint64_t now_ns) {
    char version[KUBE_LEASE_VERSION_BYTES] = "";
    yyjson_val *root = object ? object->val : NULL;
    copy_text(json_at(root, "/metadata/resourceVersion"), version, sizeof(version));
    bool same =
        lease->known && lease->exists == (root != NULL) && strcmp(version, lease->version) == 0;
    int64_t lasts_s = json_whole(json_at(root, "/spec/leaseDurationSeconds"));
    lease->observed_ns = same ? lease->observed_ns : now_ns;
    lease->known = true;
    lease->exists = root != NULL;
    memcpy(lease->version, version, sizeof(version));
    copy_text(json_at(root, "/spec/holderIdentity"), lease->holder, sizeof(lease->holder));
    lease->duration_ns = (uint64_t)(lasts_s > 0 ? lasts_s : KUBE_LEASE_DURATION_S) * NS_PER_S;
    lease->n_transitions = json_whole(json_at(root, "/spec/leaseTransitions"));
    if (strcmp(lease->holder, lease->identity) != 0) {
        lease->renewed_ns = 0;
    }
}

void kube_lease_apply_success(struct kube_lease *lease, enum kube_lease_step step,
                              const struct doc_node *object, uint64_t asked_ns, uint64_t now_ns) {
    kube_lease_observe(lease, object, now_ns);
    bool ours = lease->exists && strcmp(lease->holder, lease->identity) == 0;
    lease->renewed_ns = ours && step != KUBE_LEASE_GET ? asked_ns : lease->renewed_ns;
}

void kube_lease_apply_conflict(struct kube_lease *lease) {
    lease->known = false;
}

/* ---- next step ------------------------------------------------------------------------------- */

bool kube_lease_is_leader(const struct kube_lease *lease, uint64_t now_ns) {
    return !lease->resigned && lease->renewed_ns > 0 && now_ns < kube_lease_expires_ns(lease);
}

uint64_t kube_lease_expires_ns(const struct kube_lease *lease) {
    return lease->renewed_ns > 0 ? lease->renewed_ns + KUBE_LEASE_RENEW_DEADLINE_S * NS_PER_S : 0;
}

enum kube_lease_step kube_lease_next(const struct kube_lease *lease, uint64_t now_ns) {
    bool ours = lease->exists && strcmp(lease->holder, lease->identity) == 0;
    if (lease->resigned) {
        return lease->known && ours ? KUBE_LEASE_RELEASE : KUBE_LEASE_STOPPED;
    }
    if (!lease->known) {
        return KUBE_LEASE_GET;
    }
    if (!lease->exists) {
        return KUBE_LEASE_CREATE;
    }
    if (ours) {
        return KUBE_LEASE_RENEW;
    }
    bool free_now = lease->holder[0] == '\0' || now_ns >= lease->observed_ns + lease->duration_ns;
    return free_now ? KUBE_LEASE_ACQUIRE : KUBE_LEASE_GET;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* "2026-01-31T23:59:59.000000Z" */
static void add_time(struct json_writer *json, const char *name, int64_t wall_us) {
    enum { US_PER_S = 1000000 };
    char day[32], text[64];
    struct tm parts;
    time_t seconds = (time_t)(wall_us / US_PER_S);
    gmtime_r(&seconds, &parts);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, sizeof(text), "%s.%06dZ", day, (int)(wall_us % US_PER_S));
    json_write_string(json, name, str_of(text));
}

static void add_spec(const struct kube_lease *lease, enum kube_lease_step step, int64_t wall_us,
                     struct json_writer *json) {
    bool released = step == KUBE_LEASE_RELEASE;
    bool renewed = step == KUBE_LEASE_RENEW || released;
    json_write_open(json, "spec", '{');
    json_write_string(json, "holderIdentity", str_of(released ? "" : lease->identity));
    json_write_i64(json, "leaseDurationSeconds", released ? 1 : KUBE_LEASE_DURATION_S);
    add_time(json, "renewTime", wall_us);
    if (!renewed) {
        add_time(json, "acquireTime", wall_us);
        json_write_i64(json, "leaseTransitions",
                       step == KUBE_LEASE_CREATE ? 0 : lease->n_transitions + 1);
    }
    json_write_close(json, '}');
}

void kube_lease_print(const struct kube_lease *lease, enum kube_lease_step step, const char *name,
                      int64_t wall_us, struct buf *out) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    if (step == KUBE_LEASE_CREATE) {
        json_write_string(&json, "apiVersion", STR("coordination.k8s.io/v1"));
        json_write_string(&json, "kind", STR("Lease"));
    }
    json_write_open(&json, "metadata", '{');
    if (step == KUBE_LEASE_CREATE) {
        json_write_string(&json, "name", str_of(name));
    } else {
        json_write_string(&json, "resourceVersion", str_of(lease->version));
    }
    json_write_close(&json, '}');
    add_spec(lease, step, wall_us, &json);
    json_write_close(&json, '}');
}
