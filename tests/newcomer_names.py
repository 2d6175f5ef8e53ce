"""Names that people of five backgrounds type first, as data for `test_names.py`."""

#: pb is the package, x a tensor, m a module, opt an optimizer, tape a GradientTape, f a compiled function.
TYPED: dict[str, str] = {
    "PyTorch": """
        pb.tensor pb.Tensor pb.nn.Module pb.nn.Linear pb.nn.Conv2d pb.nn.LayerNorm pb.nn.Dropout
        pb.nn.Embedding pb.nn.LSTM pb.nn.relu pb.nn.sigmoid pb.nn.tanh pb.nn.softmax pb.optim.Adam
        pb.optim.SGD pb.optim.AdamW pb.save pb.load pb.no_grad pb.enable_grad pb.inference_mode pb.compile
        pb.zeros pb.ones pb.arange pb.linspace pb.stack pb.equal pb.float32 pb.max pb.argmax pb.einsum pb.topk
        pb.sort pb.gather pb.scatter pb.masked_fill pb.where pb.cumsum pb.vmap pb.set_num_threads pb.gradcheck
        pb.outer pb.split pb.flatten pb.squeeze pb.transpose pb.dot pb.matmul pb.logsumexp pb.softmax
        pb.sigmoid pb.relu pb.tanh pb.exp pb.full pb.eye pb.tril pb.triu pb.isnan pb.nn.Parameter pb.nn.ReLU
        pb.nn.GELU pb.nn.Sigmoid pb.nn.Softmax pb.nn.Flatten pb.nn.MaxPool2d pb.nn.AvgPool2d
        pb.nn.AdaptiveAvgPool2d pb.nn.BatchNorm2d pb.nn.BatchNorm1d pb.nn.MultiheadAttention pb.nn.ModuleList
        pb.nn.ModuleDict pb.nn.ParameterList pb.nn.ConvTranspose2d pb.nn.Upsample pb.nn.CrossEntropyLoss
        pb.nn.MSELoss pb.nn.BCEWithLogitsLoss pb.nn.functional pb.nn.functional.relu
        pb.nn.functional.cross_entropy pb.nn.utils.clip_grad_norm_ pb.nn.init.kaiming_normal_
        pb.nn.init.xavier_uniform_ pb.optim.lr_scheduler pb.optim.lr_scheduler.StepLR
        pb.optim.lr_scheduler.CosineAnnealingLR pb.manual_seed pb.autograd.grad pb.autograd.Function
        pb.autograd.functional.jacobian pb.func.grad pb.randn pb.rand pb.randint pb.randperm pb.cat
        pb.from_numpy pb.as_tensor pb.allclose pb.long pb.bmm pb.mm pb.index_select pb.clamp pb.norm
        pb.multinomial pb.autograd.gradcheck pb.optim.swa_utils pb.is_tensor pb.unsqueeze pb.chunk pb.permute
        pb.nn.TransformerEncoderLayer pb.nn.Identity pb.utils.data.DataLoader pb.utils.data.TensorDataset
        pb.data.DataLoader pb.utils.data.random_split pb.device pb.cuda.is_available pb.cuda.amp.autocast
        pb.autocast pb.set_default_dtype pb.get_default_dtype pb.func.functional_call pb.jit.script
        pb.distributions.Normal pb.distributions.MixtureSameFamily pb.distributions.AffineTransform
        pb.profiler.profile pb.backends pb.use_deterministic_algorithms pb.hub
        pb.onnx.export pb.numel pb.amp.autocast pb.amp.GradScaler pb.amp.custom_fwd pb.amp.custom_bwd
        pb.cuda.amp.GradScaler pb.cuda.amp.custom_fwd pb.is_autocast_enabled pb.get_autocast_dtype
        pb.set_autocast_enabled pb.clear_autocast_cache pb.amp.is_autocast_available pb.GradScaler
    """,
    "PyTorch tensor methods": """
        x.backward x.grad x.requires_grad x.requires_grad_ x.detach x.item x.numpy x.reshape x.transpose x.T
        x.squeeze x.repeat x.size x.shape x.ndim x.device x.dtype x.sum x.mean x.std x.var x.max x.min
        x.argmax x.argmin x.abs x.sqrt x.exp x.log x.sin x.dot x.tanh x.fill_ x.is_leaf x.retain_grad
        x.register_hook x.flatten x.cumsum x.all x.any x.tolist x.clone x.cpu x.cuda x.to x.type x.float
        x.double x.half x.long x.int x.bool x.view x.permute x.t x.unsqueeze x.expand x.expand_as x.dim
        x.numel x.pow x.clamp x.matmul x.mm x.bmm x.norm x.softmax x.log_softmax x.sigmoid x.relu x.add_
        x.sub_ x.mul_ x.div_ x.zero_ x.copy_ x.data x.grad_fn x.masked_fill x.scatter_ x.gather x.index_select
        x.unbind x.chunk x.split x.topk x.sort x.eq x.lt x.isnan x.isfinite x.allclose x.detach_ x.clamp_
        x.contiguous x.new_zeros x.share_memory_ x.is_cuda x.element_size x.storage x.sum_to_size
    """,
    "PyTorch module/optimizer attributes": """
        m.parameters m.named_parameters m.named_modules m.buffers m.state_dict m.load_state_dict m.train
        m.eval m.training m.zero_grad m.requires_grad_ m.register_forward_hook m.forward opt.step
        opt.zero_grad opt.state_dict opt.load_state_dict m.children m.named_children m.modules
        m.register_buffer m.register_parameter m.register_full_backward_hook m.add_module opt.param_groups
        m.to m.cpu m.cuda m.float m.double m.half m.apply m.extra_repr m.get_submodule m.compile opt.state
        opt.add_param_group opt.defaults
    """,
    "JAX": """
        pb.jit pb.grad pb.value_and_grad pb.vmap pb.jvp pb.vjp pb.linearize pb.jacfwd pb.jacrev pb.hessian
        pb.checkpoint pb.random.key pb.random.split pb.random.fold_in pb.random.normal pb.random.uniform
        pb.random.permutation pb.random.categorical pb.random.bernoulli pb.random.choice pb.scan pb.cond
        pb.while_loop pb.fori_loop pb.stop_gradient pb.nn.relu pb.nn.softmax pb.nn.one_hot pb.nn.log_softmax
        pb.dtypes pb.segment_sum f.lower pb.optim.adam pb.optim.sgd pb.optim.chain pb.optim.apply_updates
        pb.optim.clip_by_global_norm pb.optim.ema pb.optim.global_norm pb.partition pb.numpy pb.numpy.sin
        pb.remat pb.custom_vjp pb.custom_jvp pb.make_jaxpr pb.eval_shape pb.ShapeDtypeStruct pb.device_put
        pb.random.PRNGKey pb.random.randint pb.tree.map pb.tree_map pb.tree_util.tree_map pb.tree.leaves
        pb.tree.flatten pb.tree_util.register_pytree_node pb.lax.scan pb.lax.cond pb.lax.while_loop
        pb.lax.fori_loop pb.lax.switch pb.lax.map pb.lax.stop_gradient pb.lax.associative_scan
        pb.lax.conv_general_dilated pb.lax.top_k pb.lax.rsqrt pb.nn.logsumexp pb.nn.initializers
        pb.scipy.special.logsumexp pb.scipy.optimize.minimize pb.scipy.linalg pb.Array pb.ops.segment_sum
        pb.clear_caches x.at pb.optim.exponential_decay pb.optim.cosine_decay_schedule
        pb.optim.warmup_cosine_decay_schedule pb.optim.inject_hyperparams pb.optim.MultiSteps pb.Module
        pb.filter_jit pb.filter_grad pb.pmap pb.block_until_ready pb.devices pb.disable_jit pb.debug.print
        pb.debug.callback pb.pure_callback pb.tree_util.Partial pb.flatten_util.ravel_pytree
        pb.lax.dynamic_slice pb.lax.psum pb.scipy.stats.norm.logpdf pb.config.update pb.default_backend
        pb.local_device_count pb.named_call pb.profiler.trace pb.experimental pb.core.Tracer pb.enable_x64
        pb.sharding pb.export.export pb.jax2tf f.trace f.clear_cache pb.combine pb.tree_at pb.nn.MLP
        pb.nn.State
    """,
    "NumPy / SciPy / HIPS autograd": """
        pb.grad pb.elementwise_grad pb.jacobian pb.hessian pb.hvp pb.value_and_grad pb.checkpoint pb.asarray
        pb.newaxis pb.pi pb.e pb.inf pb.nan pb.sin pb.arcsin pb.asin pb.concatenate pb.concat pb.vstack
        pb.hstack pb.dot pb.inner pb.outer pb.tensordot pb.einsum pb.linalg.solve pb.linalg.inv pb.linalg.norm
        pb.linalg.eigh pb.linalg.svd pb.linalg.lstsq pb.linalg.det pb.linalg.slogdet pb.linalg.cholesky
        pb.fft.fft pb.power pb.pow pb.absolute pb.abs pb.amax pb.max pb.nansum pb.average pb.median
        pb.percentile pb.quantile pb.interp pb.trapezoid pb.cumsum pb.diff pb.gradient pb.convolve pb.polyval
        pb.meshgrid pb.where pb.select pb.clip pb.maximum pb.logaddexp pb.special.expit pb.special.gammaln
        pb.special.erf pb.special.logsumexp pb.isclose pb.random.normal pb.sort pb.argsort pb.unique pb.flip
        pb.roll pb.tile pb.repeat pb.pad pb.stack pb.split pb.swapaxes pb.moveaxis pb.transpose pb.ravel
        pb.squeeze pb.expand_dims pb.atleast_1d pb.float64 pb.save pb.load pb.sparse_jacobian
        pb.interop.scipy.minimize pb.root pb.gradcheck pb.Dual x.T x.astype x.copy x.ravel x.dot x.flatten
        x.nonzero x.round x.tolist x.size x.cumsum x.argsort x.mean x.real x.conj x.trace x.swapaxes x.clip
        x.searchsorted x.prod pb.numpy pb.hessian_vector_product pb.make_vjp pb.make_jvp pb.multigrad
        pb.grad_and_aux pb.vector_jacobian_product pb.make_hvp pb.make_ggnvp pb.extend.primitive
        pb.extend.defvjp pb.primitive pb.defvjp pb.misc.optimizers.adam pb.test_util.check_grads
        pb.numpy.random pb.scipy.special pb.array pb.ndarray pb.expit pb.allclose pb.random.randn pb.savez
        pb.optimize.minimize pb.minimize pb.check_grads pb.dual x.sort x.fill x.view x.ptp pb.holomorphic_grad
        pb.tensor_jacobian_product pb.misc.flatten pb.scipy.stats pb.histogram pb.polyfit pb.mgrid
        pb.random.default_rng pb.integrate.odeint pb.odeint x.tobytes pb.ode.odeint pb.ode.solve_ivp pb.solve_ivp pb.ma
        pb.masked.masked_equal pb.masked.median pb.masked_where pb.NUTS pb.implicit.CvxpyLayer
        pb.linalg.ldl
    """,
    "TensorFlow": """
        pb.GradientTape pb.Graph pb.Tensor pb.matmul pb.concat pb.stack pb.unstack pb.expand_dims pb.squeeze
        pb.transpose pb.reshape pb.gather pb.where pb.one_hot pb.tile pb.zeros_like pb.stop_gradient
        pb.gradients pb.while_loop pb.cond pb.scan pb.square pb.multiply pb.divide pb.argmax pb.equal
        pb.nn.relu pb.nn.softmax pb.nn.conv2d pb.nn.max_pool2d pb.nn.dropout pb.optim.Adam pb.random.normal
        pb.random.uniform pb.Checkpoints pb.linalg.solve pb.linalg.matmul tape.gradient tape.watch
        tape.jacobian tape.batch_jacobian tape.stop_recording tape.reset x.numpy x.shape x.value pb.Variable
        pb.constant pb.function pb.placeholder pb.Session pb.convert_to_tensor pb.cast pb.reduce_sum
        pb.reduce_mean pb.reduce_max pb.reduce_logsumexp pb.gather_nd pb.scatter_nd
        pb.tensor_scatter_nd_update pb.boolean_mask pb.range pb.fill pb.custom_gradient pb.hessians pb.map_fn
        pb.vectorized_map pb.norm pb.clip_by_value pb.clip_by_global_norm pb.clip_by_norm pb.shape pb.size
        pb.rank pb.debugging.check_numerics pb.debugging.enable_check_numerics pb.math.reduce_sum
        pb.math.sigmoid pb.nn.softmax_cross_entropy_with_logits pb.nn.sparse_softmax_cross_entropy_with_logits
        pb.nn.sigmoid_cross_entropy_with_logits pb.nn.l2_normalize pb.nn.embedding_lookup pb.keras.Model
        pb.keras.layers.Dense pb.nn.Dense pb.keras.optimizers.Adam pb.optimizers.Adam
        pb.losses.MeanSquaredError pb.random.set_seed pb.random.shuffle pb.train.Checkpoint
        pb.train.CheckpointManager pb.Module pb.executing_eagerly pb.autodiff.ForwardAccumulator
        pb.UnconnectedGradients.ZERO pb.initializers.GlorotUniform tape.watched_variables x.assign
        x.assign_sub x.assign_add x.trainable pb.identity pb.TensorArray pb.print pb.debugging.assert_equal
        pb.nn.moments pb.nn.bias_add pb.keras pb.data.Dataset pb.data.Dataset.from_tensor_slices
        pb.saved_model.save pb.distribute pb.config pb.device pb.summary pb.strings pb.sparse pb.image
        pb.signal pb.name_scope pb.control_dependencies pb.autograph x.read_value x.name x.set_shape
    """,
}
