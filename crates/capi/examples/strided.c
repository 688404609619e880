/* strided: a matrix of numbers in one file, row by row; columns are read in one call each, and then it is told what limited
 * that.
 *
 *     strided vz:/FILE ROWS COLUMNS
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vazao.h>

static int complain(vazao_error *error)
{
    fprintf(stderr, "strided: %s\n", vazao_error_message(error));
    vazao_error_free(error);
    return -1;
}

/* Number `row` * `columns` + `column` stands at its place. */
static int write_matrix(vazao_file *file, uint64_t rows, uint64_t columns)
{
    vazao_error *error = NULL;
    size_t row_bytes = (size_t)columns * sizeof(uint64_t);
    uint64_t *numbers = malloc(row_bytes);
    uint64_t row, column;
    int failed = numbers == NULL ? -1 : 0;

    for (row = 0; row < rows && !failed; row++) {
        for (column = 0; column < columns; column++)
            numbers[column] = row * columns + column;
        if (vazao_pwrite(file, numbers, row_bytes, row * row_bytes, &error) < 0)
            failed = complain(error);
    }
    free(numbers);
    return failed;
}

/* Reads each column, and compares the sum of its numbers with what it has to be. */
static int read_columns(vazao_file *file, uint64_t rows, uint64_t columns)
{
    vazao_error *error = NULL;
    size_t column_bytes = (size_t)rows * sizeof(uint64_t);
    uint64_t *numbers = malloc(column_bytes);
    uint64_t row, column, sum, wrong = 0;
    int failed = numbers == NULL ? -1 : 0;

    for (column = 0; column < columns && !failed; column++) {
        vazao_strided ranges = {column * sizeof(uint64_t), sizeof(uint64_t), columns * sizeof(uint64_t), (size_t)rows};
        int64_t bytes = vazao_read_strided(file, &ranges, numbers, column_bytes, &error);
        if (bytes < 0) {
            failed = complain(error);
            break;
        }
        for (row = 0, sum = 0; row < rows; row++)
            sum += numbers[row];
        wrong += (size_t)bytes != column_bytes || sum != rows * column + columns * (rows * (rows - 1) / 2);
    }
    free(numbers);
    if (!failed)
        printf("%llu columns read, %llu wrong\n", (unsigned long long)columns, (unsigned long long)wrong);
    return failed || wrong > 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    vazao_error *error = NULL;
    vazao_connection *volume = NULL;
    vazao_file *file = NULL;
    vazao_watch *watch = NULL;
    vazao_limit limit;
    uint64_t rows = argc == 4 ? strtoull(argv[2], NULL, 10) : 0, columns = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    int failed = -1;

    if (rows == 0 || columns == 0) {
        fprintf(stderr, "usage: strided vz:/FILE ROWS COLUMNS\n");
        return 2;
    }
    if (vazao_connect(NULL, NULL, &volume, &error) < 0
        || vazao_open(volume, argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644, &file, &error) < 0
        || vazao_watch_begin(volume, &watch, &error) < 0)
        complain(error);
    else if (write_matrix(file, rows, columns) == 0 && read_columns(file, rows, columns) == 0)
        failed = vazao_watch_limit(watch, &limit, &error) < 0 ? complain(error) : 0;
    if (!failed)
        printf("%s\n", limit.text);
    vazao_watch_free(watch);
    if (file != NULL && vazao_file_close(file, &error) < 0)
        failed = complain(error);
    vazao_file_free(file);
    if (volume != NULL && vazao_disconnect(volume, &error) < 0)
        failed = complain(error);
    vazao_connection_free(volume);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
