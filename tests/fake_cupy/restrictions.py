"""What CuPy 14 does not have or does not accept, by name."""

from __future__ import annotations

#: The dtypes that `cupy.add.at` and `cupy.maximum.at` take.
ADD_AT = ("int32", "int64", "float16", "float32", "float64", "uint32", "uint64")
EXTREME_AT = ("int32", "int64", "float32", "float64", "uint32", "uint64")
#: Names of NumPy and SciPy that CuPy lacks, as far as this package could use them.
MISSING = """
    block einsum_path errstate frompyfunc geomspace histogram_bin_edges insert matvec nanpercentile nanquantile
    ndenumerate nditer polyder polydiv polyint spacing unstack vecdot vecmat
"""
LINALG_MISSING = "diagonal matrix_norm multi_dot outer svdvals tensordot trace vecdot vector_norm"
SCIPY_LINALG_MISSING = "expm_frechet logm schur sqrtm solve_sylvester funm"
SPECIAL_MISSING = """
    airy airye bdtrik dawsn ellipe elliprc elliprd elliprf elliprg elliprj eval_chebyt eval_chebyu eval_gegenbauer
    eval_genlaguerre eval_hermite eval_hermitenorm eval_jacobi eval_laguerre eval_legendre fresnel hyp0f1 hyp1f1 hyp2f1
    hyperu iv ive jv jve kv kve ndtri_exp owens_t pdtrik spence wofz wrightomega yv yve
"""
