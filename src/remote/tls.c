/* TLS of a connection, by OpenSSL where it is installed. The certificate of the server must be
 * signed by an authority that is trusted, and be for the host that was asked for: nothing turns
 * that off. Bytes pass through a BIO of our own, because that of OpenSSL raises SIGPIPE. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "remote/remote_impl.h"

#ifdef GQAC_TLS

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *socket;
};

struct tls {
    SSL *ssl;
    int fd;
    bool asked;  /* the server asked for a certificate, and has not answered without one */
    bool broken; /* an error after which OpenSSL must not be asked for more */
};

/* ---- the socket ---------------------------------------------------------- */

static int moved(BIO *bio, ssize_t n, int retry) {
    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static int socket_write(BIO *bio, const char *data, int bytes) {
    const tls *t = BIO_get_data(bio);
    return moved(bio, send(t->fd, data, (size_t)bytes, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static int socket_read(BIO *bio, char *data, int bytes) {
    const tls *t = BIO_get_data(bio);
    return moved(bio, recv(t->fd, data, (size_t)bytes, 0), BIO_FLAGS_READ);
}

static long socket_control(BIO *bio, int command, long number, void *arg) {
    (void)bio, (void)number, (void)arg;
    return command == BIO_CTRL_FLUSH; /* nothing is kept back */
}

/* A process has about a hundred indices, and none is ever given back. */
static int socket_index;
static pthread_once_t socket_once = PTHREAD_ONCE_INIT;

static void take_index(void) {
    socket_index = BIO_get_new_index();
}

static BIO_METHOD *make_socket(void) {
    pthread_once(&socket_once, take_index);
    if (socket_index < 0)
        return NULL;
    BIO_METHOD *m = BIO_meth_new(socket_index | BIO_TYPE_SOURCE_SINK, "gqac socket");
    if (m && BIO_meth_set_write(m, socket_write) && BIO_meth_set_read(m, socket_read) &&
        BIO_meth_set_ctrl(m, socket_control))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* ---- certificates -------------------------------------------------------- */

/* Without it OpenSSL asks on the terminal. */
static int no_password(char *text, int size, int writing, void *arg) {
    (void)text, (void)size, (void)writing, (void)arg;
    return 0;
}

/* OpenSSL calls it only if there is no certificate. Returns 0: continue without one. */
static int note_asked(SSL *ssl, X509 **certificate, EVP_PKEY **key) {
    tls *t = SSL_get_app_data(ssl);
    (void)certificate, (void)key;
    t->asked = true;
    return 0;
}

static gqac_status refuse_file(gqac_diag *diag, const char *what, const char *file) {
    if (access(file, R_OK) != 0)
        gqac_diag_set(diag, GQAC_IO, "the %s cannot be read: %s", what, gqac_errno_text(errno));
    else
        gqac_diag_set(diag, GQAC_USAGE, "the file has no %s", what);
    gqac_diag_where(diag, "%s", file);
    gqac_diag_rule(diag, "certificates and keys are in PEM, and keys have no password");
    return diag->status;
}

/* Two libraries of OpenSSL may give one number to different reasons. */
static bool is_error(unsigned long error, int library, int reason) {
    return ERR_GET_LIB(error) == library && ERR_GET_REASON(error) == reason;
}

static gqac_status read_own(SSL_CTX *ssl, const gqac_remote_options *o, gqac_diag *diag) {
    if (!o->cert_file != !o->key_file)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "a certificate of the client needs its key, and a key needs its certificate");
    if (!o->cert_file)
        return GQAC_OK;
    if (SSL_CTX_use_certificate_chain_file(ssl, o->cert_file) != 1)
        return refuse_file(diag, "certificate", o->cert_file);
    const bool read = SSL_CTX_use_PrivateKey_file(ssl, o->key_file, SSL_FILETYPE_PEM) == 1;
    if (read && SSL_CTX_check_private_key(ssl) == 1) /* a key of another kind is read */
        return GQAC_OK;
    if (!read && !is_error(ERR_peek_last_error(), ERR_LIB_X509, X509_R_KEY_VALUES_MISMATCH))
        return refuse_file(diag, "key", o->key_file);
    gqac_diag_set(diag, GQAC_USAGE, "the key is not that of the certificate %s", o->cert_file);
    gqac_diag_where(diag, "%s", o->key_file);
    return GQAC_USAGE;
}

static gqac_status read_files(SSL_CTX *ssl, const gqac_remote_options *o, gqac_diag *diag) {
    if (o->ca_file && SSL_CTX_load_verify_file(ssl, o->ca_file) != 1)
        return refuse_file(diag, "certificate", o->ca_file);
    if (!o->ca_file && SSL_CTX_set_default_verify_paths(ssl) != 1)
        GQAC_FAIL(diag, GQAC_IO, "the certificates that the system trusts cannot be read");
    return read_own(ssl, o, diag);
}

static gqac_status set_up(tls_context *c, const gqac_remote_options *options, gqac_diag *diag) {
    c->ssl = SSL_CTX_new(TLS_client_method());
    c->socket = c->ssl ? make_socket() : NULL;
    if (!c->socket || SSL_CTX_set_min_proto_version(c->ssl, TLS1_2_VERSION) != 1)
        return gqac_diag_oom(diag, "TLS");
    SSL_CTX_set_default_passwd_cb(c->ssl, no_password);
    SSL_CTX_set_client_cert_cb(c->ssl, note_asked);
    SSL_CTX_set_verify(c->ssl, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(c->ssl, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(c->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return read_files(c->ssl, options, diag);
}

gqac_status tls_context_open(const gqac_remote_options *options, tls_context **out,
                             gqac_diag *diag) {
    tls_context *c = calloc(1, sizeof *c);
    if (!c)
        return gqac_diag_oom(diag, "TLS");
    const gqac_status status = set_up(c, options, diag);
    ERR_clear_error();
    GQAC_RETURN_MADE(status, c, out, tls_context_free);
}

void tls_context_free(tls_context *context) {
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->socket);
    free(context);
}

/* ---- bytes --------------------------------------------------------------- */

/* What the other side, or OpenSSL, says in its own words. */
static void explain_error(unsigned long error, char why[WHY]) {
    const char *reason = ERR_reason_error_string(error);
    if (is_error(error, ERR_LIB_SSL, SSL_R_WRONG_VERSION_NUMBER))
        snprintf(why, WHY, "it does not speak TLS");
    else if (is_error(error, ERR_LIB_SSL, SSL_R_UNEXPECTED_EOF_WHILE_READING))
        snprintf(why, WHY, "it closed the connection");
    else
        snprintf(why, WHY, "TLS failed: %s", reason ? reason : "no reason is known");
}

/* Why a call of OpenSSL failed, if it is not about the socket. A server that must have a
 * certificate may end the connection before its reason arrives. */
static void explain(const tls *t, char why[WHY]) {
    const long verified = SSL_get_verify_result(t->ssl);
    const unsigned long error = ERR_peek_error();
    if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH)
        snprintf(why, WHY, "its certificate is not for this host");
    else if (verified != X509_V_OK)
        snprintf(why, WHY,
                 "its certificate is refused: %s; --remote-cacert FILE names the authorities to "
                 "trust",
                 X509_verify_cert_error_string(verified));
    else if (t->asked)
        snprintf(why, WHY,
                 "it asked for a certificate and closed the connection; --remote-cert FILE and "
                 "--remote-key FILE give it one");
    else if (error)
        explain_error(error, why);
}

/* The result of a call that moved n bytes, as that of send or recv. */
static ssize_t finish(tls *t, int n, short *wants, char why[WHY]) {
    const int error = SSL_get_error(t->ssl, n);
    if (n > 0)
        return n;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        *wants = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
        errno = EAGAIN;
        return -1;
    }
    t->broken = error == SSL_ERROR_SSL || error == SSL_ERROR_SYSCALL;
    explain(t, why);
    errno = EPROTO; /* or the server ended it in order */
    return -1;
}

ssize_t tls_send(tls *t, const void *data, size_t bytes, short *wants, char why[WHY]) {
    ERR_clear_error();
    return finish(t, SSL_write(t->ssl, data, bytes < INT32_MAX ? (int)bytes : INT32_MAX), wants,
                  why);
}

ssize_t tls_receive(tls *t, void *data, size_t bytes, short *wants, char why[WHY]) {
    ERR_clear_error();
    const ssize_t n =
        finish(t, SSL_read(t->ssl, data, bytes < INT32_MAX ? (int)bytes : INT32_MAX), wants, why);
    if (n > 0)
        t->asked = false;
    return n;
}

/* ---- beginning and end --------------------------------------------------- */

/* The name or the address that the certificate must be for; only names are sent to the server. */
static bool expect_host(SSL *ssl, const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static bool attach(tls *t, const tls_context *context, const char *host) {
    t->ssl = SSL_new(context->ssl);
    BIO *bio = t->ssl ? BIO_new(context->socket) : NULL;
    if (!bio)
        return false;
    SSL_set_app_data(t->ssl, t);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    return expect_host(t->ssl, host);
}

static bool shake_hands(tls *t, int64_t until, char why[WHY]) {
    short wants = 0;
    for (;;) {
        ERR_clear_error();
        const ssize_t n = finish(t, SSL_connect(t->ssl), &wants, why);
        if (n > 0)
            return true;
        if (errno != EAGAIN) {
            if (!*why)
                snprintf(why, WHY, "it closed the connection");
            return false;
        }
        if (!socket_wait(t->fd, wants, until))
            return false;
    }
}

tls *tls_open(const tls_context *context, int fd, const char *host, int64_t until, char why[WHY]) {
    tls *t = calloc(1, sizeof *t);
    if (t)
        t->fd = fd;
    if (!t || !attach(t, context, host))
        snprintf(why, WHY, "out of memory");
    else if (shake_hands(t, until, why))
        return t;
    tls_close(t);
    return NULL;
}

void tls_close(tls *t) {
    if (!t)
        return;
    if (t->ssl && SSL_is_init_finished(t->ssl) && !t->broken)
        (void)SSL_shutdown(t->ssl);
    SSL_free(t->ssl);
    ERR_clear_error();
    free(t);
}

#else

gqac_status tls_context_open(const gqac_remote_options *options, tls_context **out,
                             gqac_diag *diag) {
    (void)options;
    *out = NULL;
    gqac_diag_set(diag, GQAC_USAGE, "this build of gqac has no TLS for a remote tier");
    gqac_diag_rule(diag, "it was built without OpenSSL");
    gqac_diag_hint(diag, "install libssl-dev and build gqac again (cmake -DGQAC_TLS=ON)");
    return GQAC_USAGE;
}

void tls_context_free(tls_context *context) {
    (void)context;
}

tls *tls_open(const tls_context *context, int fd, const char *host, int64_t until, char why[WHY]) {
    (void)context, (void)fd, (void)host, (void)until, (void)why;
    return NULL;
}

void tls_close(tls *t) {
    (void)t;
}

ssize_t tls_send(tls *t, const void *data, size_t bytes, short *wants, char why[WHY]) {
    (void)t, (void)data, (void)bytes, (void)wants, (void)why;
    errno = EPROTO;
    return -1;
}

ssize_t tls_receive(tls *t, void *data, size_t bytes, short *wants, char why[WHY]) {
    (void)t, (void)data, (void)bytes, (void)wants, (void)why;
    errno = EPROTO;
    return -1;
}

#endif
