/* Fixture for DNS tests: a DNS server over UDP on its own thread, whose records a test changes
 * while it runs. Include cmocka.h first. */
#ifndef SLUICE_NET_CLIENT_DNS_FIXTURE_H
#define SLUICE_NET_CLIENT_DNS_FIXTURE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/event/lock.h"

enum { TEST_DNS_RECORDS = 32, TEST_DNS_A = 1, TEST_DNS_AAAA = 28, TEST_DNS_SRV = 33 };
enum test_dns_manners { TEST_DNS_ANSWERS, TEST_DNS_SILENT, TEST_DNS_FAILS, TEST_DNS_BABBLES };

struct test_dns_record {
    const char *name; /* "a.test"; NULL: none */
    uint16_t type;
    uint32_t ip;             /* 127.0.0.0 and up; of AAAA the last four bytes */
    uint16_t priority, port; /* of SRV */
    const char *target;      /* of SRV: one label */
};

struct test_dns {
    int fd;
    char address[32];
    struct lock lock;
    struct test_dns_record records[TEST_DNS_RECORDS];
    size_t n_records;
    atomic_int manners;
    atomic_int n_asked;
    pthread_t thread;
};

static inline size_t test_dns_put16(unsigned char *out, unsigned value) {
    out[0] = (unsigned char)(value >> 8);
    out[1] = (unsigned char)value;
    return 2;
}

/* "a.test" from labels. Returns: length of the name on the wire. */
static inline size_t test_dns_name(const unsigned char *wire, size_t n, char out[64]) {
    size_t at = 0, len = 0;
    while (at < n && wire[at] != 0 && at + wire[at] < n && len + wire[at] + 1u < 64) {
        memcpy(out + len, wire + at + 1, wire[at]);
        len += wire[at];
        out[len++] = '.';
        at += 1u + wire[at];
    }
    out[len > 0 ? len - 1 : 0] = '\0';
    return at + 1;
}

/* Appends the record's data, after its name. */
static inline size_t test_dns_data(const struct test_dns_record *record, unsigned char *out) {
    size_t n = 0, label = record->target ? strlen(record->target) : 0;
    uint32_t ip = htonl(record->ip);
    switch (record->type) {
    case TEST_DNS_A:
        n += test_dns_put16(out, 4);
        break;
    case TEST_DNS_AAAA:
        n += test_dns_put16(out, 16);
        memset(out + n, 0, 12);
        n += 12;
        break;
    default:
        n += test_dns_put16(out, 6 + 1 + (unsigned)label + 1);
        n += test_dns_put16(out + n, record->priority);
        n += test_dns_put16(out + n, 0);
        n += test_dns_put16(out + n, record->port);
        out[n++] = (unsigned char)label;
        memcpy(out + n, record->target, label + 1);
        return n + label + 1;
    }
    memcpy(out + n, &ip, 4);
    return n + 4;
}

/* Turns the query into an answer, in place. Returns: its length; 0: no answer. */
static inline size_t test_dns_answer(struct test_dns *dns, unsigned char *message, size_t n) {
    char name[64];
    unsigned n_answers = 0;
    bool known = false;
    if (n < 17) {
        return 0;
    }
    size_t end = 12 + test_dns_name(message + 12, n - 12, name);
    unsigned type = (unsigned)message[end] << 8 | message[end + 1];
    end += 4;
    lock_acquire(&dns->lock);
    for (size_t i = 0; i < dns->n_records; i++) {
        const struct test_dns_record *record = &dns->records[i];
        bool same = record->name && strcmp(record->name, name) == 0;
        known = known || same;
        if (same && record->type == type) {
            end += test_dns_put16(message + end, 0xc00c);
            end += test_dns_put16(message + end, type);
            end += test_dns_put16(message + end, 1);
            end += test_dns_put16(message + end, 0); /* TTL 0 */
            end += test_dns_put16(message + end, 0);
            end += test_dns_data(record, message + end);
            n_answers++;
        }
    }
    lock_release(&dns->lock);
    test_dns_put16(message + 2, known ? 0x8180 : 0x8183);
    test_dns_put16(message + 6, n_answers);
    test_dns_put16(message + 8, 0);
    test_dns_put16(message + 10, 0);
    return end;
}

static inline void *test_dns_serve(void *arg) {
    struct test_dns *dns = arg;
    unsigned char message[2048];
    for (;;) {
        struct sockaddr_in from;
        socklen_t len = sizeof(from);
        ssize_t n = recvfrom(dns->fd, message, 512, 0, (struct sockaddr *)(void *)&from, &len);
        if (n <= 1) { /* one byte stops the server */
            return NULL;
        }
        int manners = atomic_load(&dns->manners);
        size_t end = test_dns_answer(dns, message, (size_t)n);
        if (manners == TEST_DNS_FAILS) {
            test_dns_put16(message + 2, 0x8182);
        } else if (manners == TEST_DNS_BABBLES) {
            memset(message + 12, 0xc1, end - 12);
        }
        atomic_fetch_add(&dns->n_asked, 1);
        if (manners != TEST_DNS_SILENT && end > 0) {
            (void)!sendto(dns->fd, message, end, 0, (struct sockaddr *)(void *)&from, len);
        }
    }
}

static inline void test_dns_init(struct test_dns *dns) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    *dns = (struct test_dns){.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    assert_true(dns->fd >= 0);
    assert_int_equal(bind(dns->fd, (struct sockaddr *)(void *)&address, len), 0);
    assert_int_equal(getsockname(dns->fd, (struct sockaddr *)(void *)&address, &len), 0);
    snprintf(dns->address, sizeof(dns->address), "127.0.0.1:%u", ntohs(address.sin_port));
    lock_init(&dns->lock);
    assert_int_equal(pthread_create(&dns->thread, NULL, test_dns_serve, dns), 0);
}

/* Replaces all records. The texts must stay valid. */
static inline void test_dns_set(struct test_dns *dns, const struct test_dns_record *records,
                                size_t n) {
    lock_acquire(&dns->lock);
    assert_true(n <= TEST_DNS_RECORDS);
    if (n > 0) {
        memcpy(dns->records, records, n * sizeof(*records));
    }
    dns->n_records = n;
    lock_release(&dns->lock);
}

static inline void test_dns_fini(struct test_dns *dns) {
    struct sockaddr_in address;
    socklen_t len = sizeof(address);
    assert_int_equal(getsockname(dns->fd, (struct sockaddr *)(void *)&address, &len), 0);
    assert_int_equal(sendto(dns->fd, "", 1, 0, (struct sockaddr *)(void *)&address, len), 1);
    pthread_join(dns->thread, NULL);
    close(dns->fd);
    lock_fini(&dns->lock);
}

#endif
