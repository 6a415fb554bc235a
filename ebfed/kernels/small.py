"""Products and factors of matrices so small that a call of BLAS costs more than the work."""

import math

import numpy as np

from ebfed.kernels._jit import jit


@jit
def _cholesky(A):
    """Replace the lower half of A by L with A = L L'; return whether A was positive."""
    d = len(A)
    for j in range(d):
        for k in range(j):
            A[j, j] -= A[j, k] * A[j, k]
        if not A[j, j] > 0:
            return False
        A[j, j] = math.sqrt(A[j, j])
        for i in range(j + 1, d):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            A[i, j] = total / A[j, j]
    return True


@jit
def _solve_lower(L, b):
    """Replace b by the solution of L x = b."""
    for j in range(len(b)):
        for k in range(j):
            b[j] -= L[j, k] * b[k]
        b[j] /= L[j, j]


@jit
def _solve_upper(L, b):
    """Replace b by the solution of L' x = b."""
    for j in range(len(b) - 1, -1, -1):
        for k in range(j + 1, len(b)):
            b[j] -= L[k, j] * b[k]
        b[j] /= L[j, j]


@jit
def _invert(L):
    """Replace the lower half L by that of the inverse of L L'."""
    d = len(L)
    for j in range(d):  # the inverse of L
        L[j, j] = 1 / L[j, j]
        for i in range(j + 1, d):
            total = 0.0
            for k in range(j, i):
                total -= L[i, k] * L[k, j]
            L[i, j] = total / L[i, i]
    for j in range(d):
        for i in range(j, d):
            total = 0.0
            for k in range(i, d):
                total += L[k, i] * L[k, j]
            L[i, j] = total


@jit
def _product(A, B):
    """Return the product of two matrices."""
    product = np.zeros((A.shape[0], B.shape[1]))
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            for j in range(B.shape[1]):
                product[i, j] += A[i, k] * B[k, j]
    return product


@jit
def _applied(A, b):
    """Return the product of a matrix and a vector."""
    product = np.zeros(A.shape[0])
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            product[i] += A[i, k] * b[k]
    return product


@jit
def _inner(a, b):
    """Return the inner product of two vectors."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@jit
def _eliminate(A, b):
    """Replace b by the solution of A x = b, and A by its upper factor, with pivots."""
    d = len(b)
    for j in range(d):
        pivot = j
        for i in range(j + 1, d):
            if abs(A[i, j]) > abs(A[pivot, j]):
                pivot = i
        b[j], b[pivot] = b[pivot], b[j]
        for k in range(j, d):
            A[j, k], A[pivot, k] = A[pivot, k], A[j, k]
        for i in range(j + 1, d):
            share = A[i, j] / A[j, j]
            b[i] -= share * b[j]
            for k in range(j + 1, d):
                A[i, k] -= share * A[j, k]
    for j in range(d - 1, -1, -1):
        for k in range(j + 1, d):
            b[j] -= A[j, k] * b[k]
        b[j] /= A[j, j]
