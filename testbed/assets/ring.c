/* An MPI job that proves itself: each rank prints its host and checks a sum over all ranks, then
   the last rank gets a message of the first. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  static char message[1 << 20];
  char host[MPI_MAX_PROCESSOR_NAME];
  int rank, size, sum, length, term, wrong;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  term = rank + 1;
  MPI_Allreduce(&term, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  wrong = sum != size * (size + 1) / 2;
  if (size > 1 && rank == 0) {
    memset(message, 7, sizeof message);
    MPI_Send(message, sizeof message, MPI_CHAR, size - 1, 0, MPI_COMM_WORLD);
  }
  if (size > 1 && rank == size - 1) {
    MPI_Recv(message, sizeof message, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong |= message[0] != 7 || message[sizeof message - 1] != 7;
  }
  printf("rank %d of %d on %s: %s\n", rank, size, host, wrong ? "wrong" : "right");
  fflush(stdout);
  MPI_Finalize();
  return wrong;
}
