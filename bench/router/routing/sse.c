/* Server-sent events for bench/router.py: a server of paced streams, and a client that times them.
 *
 *   sse serve PORT EVENTS_PER_S EVENTS    every POST gets EVENTS events, evenly paced, then [DONE]
 *   sse load PORT STREAMS SECONDS BODY    keeps STREAMS requests with the file BODY going
 *
 * Each event carries the monotonic clock at its writing, so the client knows how long it travelled.
 * One thread and epoll each: what is measured is the router between them. GET requests get a small
 * JSON that passes for a health check and a list of models.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_FDS 8192
#define BUFFER 65536
#define MAX_DELAYS (8 * 1000 * 1000)

typedef struct {
  char in[BUFFER];
  int used;        /* bytes in `in` */
  long body_left;  /* of the request being skipped, or -1 while its head is read */
  int streaming;   /* server: a stream is under way */
  int is_post;
  int64_t begun_ns;
  long sent;       /* events */
} Connection;

static Connection *connections[MAX_FDS];
static int poll_fd;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void watch(int fd) {
  if (fd >= MAX_FDS) { fprintf(stderr, "more than %d connections\n", MAX_FDS); exit(1); }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
  connections[fd] = calloc(1, sizeof(Connection));
  connections[fd]->body_left = -1;
}

static void drop(int fd) {
  free(connections[fd]);
  connections[fd] = NULL;
  close(fd);
}

/* ---- server ---- */

static void put(int fd, const char *data, int size) {
  /* A peer that falls so far behind that its socket is full ends the measurement. */
  if (send(fd, data, size, MSG_NOSIGNAL) != size) connections[fd]->streaming = -1;
}

static void put_event(int fd, const char *data) {
  char out[1024];
  int size = snprintf(out, sizeof out, "%zx\r\n%s\r\n", strlen(data), data);
  put(fd, out, size);
}

static void answer_get(int fd) {
  static const char body[] =
      "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}],\"status\":\"ok\","
      "\"model_path\":\"m\",\"served_model_name\":\"m\",\"is_generation\":true}";
  char out[1024];
  int size = snprintf(out, sizeof out,
                      "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                      "content-length: %zu\r\n\r\n%s", strlen(body), body);
  put(fd, out, size);
}

static void begin_stream(int fd) {
  static const char head[] =
      "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
  Connection *c = connections[fd];
  c->streaming = 1;
  c->begun_ns = now_ns();
  c->sent = 0;
  put(fd, head, sizeof head - 1);
}

/* Takes whole requests off the front of the buffer. */
static void take_requests(int fd) {
  Connection *c = connections[fd];
  for (;;) {
    if (c->body_left < 0) {
      c->in[c->used] = 0;
      char *end = strstr(c->in, "\r\n\r\n");
      if (!end) return;
      c->is_post = !strncmp(c->in, "POST", 4);
      char *length = strcasestr(c->in, "\ncontent-length:");
      c->body_left = length && length < end ? atol(length + 16) : 0;
      int head = end + 4 - c->in;
      memmove(c->in, c->in + head, c->used -= head);
    }
    int taken = c->used < c->body_left ? c->used : c->body_left;
    memmove(c->in, c->in + taken, c->used -= taken);
    c->body_left -= taken;
    if (c->body_left) return;
    c->body_left = -1;
    if (c->is_post) begin_stream(fd); else answer_get(fd);
  }
}

static void send_due(int fd, double per_s, long events) {
  static const char form[] =
      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":"
      "\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}],"
      "\"t\":%lld}\n\n";
  Connection *c = connections[fd];
  char data[512];
  while (c->streaming == 1 && c->sent < events &&
         now_ns() >= c->begun_ns + (int64_t)(c->sent * 1e9 / per_s)) {
    snprintf(data, sizeof data, form, (long long)now_ns());
    put_event(fd, data);
    c->sent++;
  }
  if (c->streaming == 1 && c->sent == events) {
    put_event(fd, "data: [DONE]\n\n");
    put(fd, "0\r\n\r\n", 5);
    c->streaming = 0;
  }
}

static int listen_on(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(fd, (void *)&at, sizeof at) || listen(fd, 1024)) die("listen");
  return fd;
}

static void serve(int port, double per_s, long events) {
  int listener = listen_on(port);
  watch(listener);
  int timer = timerfd_create(CLOCK_MONOTONIC, 0);
  struct itimerspec each_ms = {{0, 1000000}, {0, 1000000}};
  timerfd_settime(timer, 0, &each_ms, NULL);
  watch(timer);
  struct epoll_event ready[256];
  for (;;) {
    int count = epoll_wait(poll_fd, ready, 256, -1);
    for (int i = 0; i < count; i++) {
      int fd = ready[i].data.fd;
      if (fd == listener) {
        int client = accept(listener, NULL, NULL);
        if (client >= 0) watch(client);
      } else if (fd == timer) {
        uint64_t ticks;
        if (read(timer, &ticks, sizeof ticks) < 0) continue;
        for (int s = 0; s < MAX_FDS; s++)
          if (connections[s] && connections[s]->streaming) {
            send_due(s, per_s, events);
            if (connections[s]->streaming < 0) drop(s);
          }
      } else {
        Connection *c = connections[fd];
        if (!c) continue;  /* dropped since epoll named it */
        int got = read(fd, c->in + c->used, BUFFER - 1 - c->used);
        if (got <= 0) { if (got == 0 || errno != EAGAIN) drop(fd); continue; }
        c->used += got;
        take_requests(fd);
      }
    }
  }
}

/* ---- client ---- */

static int32_t *delays_us;
static long delays, failures, streams_done;
static char *request;
static int request_size;

static int by_size(const void *a, const void *b) { return *(int32_t *)a - *(int32_t *)b; }

static int open_stream(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(fd, (void *)&to, sizeof to)) die("connect");
  watch(fd);
  if (send(fd, request, request_size, MSG_NOSIGNAL) != request_size) die("send");
  return fd;
}

/* Counts the events in the buffer, and keeps what may be the start of one. */
static int take_events(int fd) {
  Connection *c = connections[fd];
  char *at = c->in, *found;
  int done = 0;
  c->in[c->used] = 0;
  int64_t now = now_ns();
  for (;;) {
    found = strstr(at, "\"t\":");
    if (!found || !strchr(found, '}')) break;
    if (delays < MAX_DELAYS) delays_us[delays] = (now - atoll(found + 4)) / 1000;
    delays++;
    at = strchr(found, '}');
  }
  if (strstr(at, "[DONE]")) { streams_done++; done = 1; at = c->in + c->used; }
  int left = c->in + c->used - at;
  if (!found && left > 16) { at += left - 16; left = 16; }
  memmove(c->in, at, c->used = left);
  return done;
}

static void make_request(int port, const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) die(path);
  char *body = malloc(BUFFER);
  int size = fread(body, 1, BUFFER, file);
  fclose(file);
  request = malloc(BUFFER + 512);
  int head = snprintf(request, 512, "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
                      "content-type: application/json\r\ncontent-length: %d\r\n\r\n", port, size);
  memcpy(request + head, body, size);
  request_size = head + size;
}

static void load(int port, int streams, double seconds, const char *body) {
  delays_us = malloc(sizeof(int32_t) * MAX_DELAYS);
  make_request(port, body);
  for (int i = 0; i < streams; i++) open_stream(port);
  int64_t begun = now_ns(), until = begun + (int64_t)(seconds * 1e9);
  struct epoll_event ready[256];
  while (now_ns() < until) {
    int count = epoll_wait(poll_fd, ready, 256, 100);
    for (int i = 0; i < count; i++) {
      int fd = ready[i].data.fd;
      Connection *c = connections[fd];
      int got = read(fd, c->in + c->used, BUFFER - 1 - c->used);
      if (got < 0 && errno == EAGAIN) continue;
      if (got <= 0) { failures++; drop(fd); open_stream(port); continue; }
      c->used += got;
      if (take_events(fd)) {
        /* A new connection each: the rest of the old answer's framing need not be read. */
        drop(fd);
        open_stream(port);
      }
    }
  }
  double lasted = (now_ns() - begun) / 1e9;
  long kept = delays < MAX_DELAYS ? delays : MAX_DELAYS;
  qsort(delays_us, kept, sizeof *delays_us, by_size);
  printf("{\"events\": %ld, \"seconds\": %.3f, \"streams\": %ld, \"failures\": %ld, "
         "\"p50_us\": %d, \"p99_us\": %d}\n", delays, lasted, streams_done, failures,
         kept ? delays_us[kept / 2] : 0, kept ? delays_us[kept * 99 / 100] : 0);
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  poll_fd = epoll_create1(0);
  if (argc == 5 && !strcmp(argv[1], "serve"))
    serve(atoi(argv[2]), atof(argv[3]), atol(argv[4]));
  else if (argc == 6 && !strcmp(argv[1], "load"))
    load(atoi(argv[2]), atoi(argv[3]), atof(argv[4]), argv[5]);
  else {
    fprintf(stderr, "sse serve PORT EVENTS_PER_S EVENTS | sse load PORT STREAMS SECONDS BODY\n");
    return 2;
  }
  return 0;
}
