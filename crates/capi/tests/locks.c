/* Byte-range locks, between files and between connections. */
#include "check.h"

/* A thread that waits for a lock, and what it gets. */
struct waiter {
    vazao_file *file;
    uint64_t offset;
    uint32_t wait_ms;
    int result;
    char seen;
};

static void *wait_for_lock(void *given)
{
    struct waiter *waiter = given;

    waiter->result = vazao_lock(waiter->file, VAZAO_LOCK_EXCLUSIVE, waiter->offset, 10, waiter->wait_ms, NULL);
    if (waiter->result == 0)
        vazao_pread(waiter->file, &waiter->seen, 1, 0, NULL);
    /* So that the other one of two that wait for one another gets on. */
    if (waiter->result == -EDEADLK)
        vazao_unlock(waiter->file, 0, 0, NULL);
    return NULL;
}

/* Between two files of one connection, and with another connection. */
static void conflicts(vazao_file *one, vazao_file *two, vazao_file *far)
{
    vazao_error *error = NULL;
    vazao_lock_info held;

    CHECK(vazao_lock(one, VAZAO_LOCK_EXCLUSIVE, 10, 10, 0, &error) == 0);
    /* Neither for this connection nor for another one. */
    FAILS(vazao_lock(two, VAZAO_LOCK_SHARED, 19, 1, 0, &error), EAGAIN, "vz:/locked");
    FAILS(vazao_lock(far, VAZAO_LOCK_EXCLUSIVE, 0, 0, 0, &error), EAGAIN, "vz:/locked");
    FAILS(vazao_lock(far, VAZAO_LOCK_EXCLUSIVE, 0, 11, 150, &error), EAGAIN, "within 150 ms");
    CHECK(vazao_lock(far, VAZAO_LOCK_EXCLUSIVE, 20, 5, 0, &error) == 0);
    CHECK(vazao_lock_test(two, VAZAO_LOCK_SHARED, 0, 15, &held, &error) == 1 && held.offset == 10 && held.bytes == 10);
    CHECK(held.mode == VAZAO_LOCK_EXCLUSIVE && held.process == (uint32_t)getpid());
    CHECK(vazao_lock_test(one, VAZAO_LOCK_EXCLUSIVE, 10, 10, &held, &error) == 0);
    /* In place of what it had: shared, and a part of it open. */
    CHECK(vazao_lock(one, VAZAO_LOCK_SHARED, 10, 10, 0, &error) == 0);
    CHECK(vazao_lock(two, VAZAO_LOCK_SHARED, 10, 10, 0, &error) == 0 && vazao_unlock(two, 10, 10, &error) == 0);
    CHECK(vazao_unlock(one, 10, 5, &error) == 0 && vazao_lock(two, VAZAO_LOCK_EXCLUSIVE, 10, 5, 0, &error) == 0);
    FAILS(vazao_lock(two, VAZAO_LOCK_EXCLUSIVE, 15, 1, 0, &error), EAGAIN, "vz:/locked");
    CHECK(vazao_unlock(one, 0, 0, &error) == 0 && vazao_unlock(two, 0, 0, &error) == 0);
    CHECK(vazao_lock(one, VAZAO_LOCK_EXCLUSIVE, 100, 0, 0, &error) == 0);
    CHECK(vazao_lock_test(far, VAZAO_LOCK_SHARED, 0, 0, &held, &error) == 1 && held.offset == 100 && held.bytes == 0);
    CHECK(vazao_unlock(one, 0, 0, &error) == 0 && vazao_unlock(far, 0, 0, &error) == 0);
}

static void bad_calls(vazao_connection *volume, vazao_file *one)
{
    vazao_error *error = NULL;
    vazao_file *reader = open_file(volume, "/locked", O_RDONLY), *file;
    char area[200];

    FAILS(vazao_lock(reader, VAZAO_LOCK_EXCLUSIVE, 0, 1, 0, &error), EBADF, "not opened for writing");
    FAILS(vazao_lock(one, 3, 0, 1, 0, &error), EINVAL, "3 is no mode");
    FAILS(vazao_lock(one, VAZAO_LOCK_SHARED, 2, UINT64_MAX, 0, &error), EFBIG, "bytes from 2");
    FAILS(vazao_lock(NULL, VAZAO_LOCK_SHARED, 0, 1, 0, &error), EINVAL, "`file` is NULL");
    FAILS(vazao_unlock(one, UINT64_MAX, 0, &error), EFBIG, "a lock of 0 bytes");
    FAILS(vazao_lock_test(one, VAZAO_LOCK_SHARED, 0, 1, NULL, &error), EINVAL, "`held` is NULL");
    snprintf(area, sizeof area, "%s/locked", getenv("AREA"));
    file = open_file(volume, area, O_RDWR | O_CREAT);
    FAILS(vazao_lock(file, VAZAO_LOCK_SHARED, 0, 1, 0, &error), EOPNOTSUPP, "not of areas");
    vazao_file_free(file);
    vazao_file_free(reader);
}

/* Threads that wait. `two` is closed. */
static void waits(vazao_file *one, vazao_file *two, vazao_file *far)
{
    struct waiter waiters[2];
    pthread_t threads[2];
    vazao_error *error = NULL;

    /* Who waits gets it when it is let go of, and reads what was written under it by another client. */
    CHECK(vazao_pwrite(one, "a", 1, 0, &error) == 1 && vazao_flush(one, &error) == 0);
    CHECK(vazao_lock(far, VAZAO_LOCK_EXCLUSIVE, 0, 10, 0, &error) == 0);
    waiters[0] = (struct waiter){one, 0, VAZAO_WAIT, 1, 0};
    pthread_create(&threads[0], NULL, wait_for_lock, &waiters[0]);
    CHECK(vazao_pwrite(far, "b", 1, 0, &error) == 1 && vazao_unlock(far, 0, 10, &error) == 0);
    pthread_join(threads[0], NULL);
    CHECK(waiters[0].result == 0 && waiters[0].seen == 'b');
    /* Closing lets go, and ends a wait. */
    waiters[1] = (struct waiter){two, 0, VAZAO_WAIT, 1, 0};
    pthread_create(&threads[1], NULL, wait_for_lock, &waiters[1]);
    CHECK(vazao_file_close(two, &error) == 0);
    pthread_join(threads[1], NULL);
    CHECK(waiters[1].result == -EBADF);
    CHECK(vazao_unlock(one, 0, 0, &error) == 0);
}

/* Each has what the other one wants: one of them gets the error, and lets go. */
static void deadlock(vazao_file *one, vazao_file *far)
{
    struct waiter waiters[2];
    pthread_t threads[2];
    vazao_error *error = NULL;

    CHECK(vazao_lock(one, VAZAO_LOCK_EXCLUSIVE, 0, 10, 0, &error) == 0);
    CHECK(vazao_lock(far, VAZAO_LOCK_EXCLUSIVE, 10, 10, 0, &error) == 0);
    waiters[0] = (struct waiter){one, 10, 30000, 1, 0};
    waiters[1] = (struct waiter){far, 0, 30000, 1, 0};
    pthread_create(&threads[0], NULL, wait_for_lock, &waiters[0]);
    pthread_create(&threads[1], NULL, wait_for_lock, &waiters[1]);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK(waiters[0].result + waiters[1].result == -EDEADLK && waiters[0].result * waiters[1].result == 0);
}

static void locks(vazao_connection *volume)
{
    vazao_error *error = NULL;
    vazao_connection *other = connect_to(NULL);
    vazao_file *one = open_file(volume, "/locked", O_RDWR | O_CREAT), *two = open_file(volume, "/locked", O_RDWR);
    vazao_file *far = open_file(other, "/locked", O_RDWR);

    conflicts(one, two, far);
    bad_calls(volume, one);
    waits(one, two, far);
    deadlock(one, far);
    /* A close lets go, and so does the end of a connection. */
    CHECK(vazao_file_close(one, &error) == 0 && vazao_lock(far, VAZAO_LOCK_EXCLUSIVE, 0, 0, 0, &error) == 0);
    vazao_file_free(one);
    vazao_file_free(two);
    CHECK(vazao_disconnect(other, &error) == 0);
    vazao_file_free(far);
    vazao_connection_free(other);
    one = open_file(volume, "/locked", O_RDWR);
    CHECK(vazao_lock(one, VAZAO_LOCK_EXCLUSIVE, 0, 0, 0, &error) == 0);
    vazao_file_free(one);
}

int main(void)
{
    vazao_error *error = NULL;
    vazao_connection *volume = connect_to(NULL);

    locks(volume);
    CHECK(vazao_disconnect(volume, &error) == 0);
    vazao_connection_free(volume);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
