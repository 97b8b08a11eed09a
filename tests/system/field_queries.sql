-- Queries of the field on cpu.*, io.*, net.*, rdma.* and process.*, as they are written there
-- but for line breaks: each must run.

SELECT ts, platform, wall_ns, delta_user_ns, delta_sys_ns, delta_total_ns, cpu_user_pct,
cpu_sys_pct, cpu_total_pct, rss_kb, thread_count, delta_vol_ctxt, delta_invol_ctxt FROM
cpu.utilization WHERE scope = 'process' ORDER BY ts DESC LIMIT 1;

SELECT delta_user_ns, delta_sys_ns, delta_total_ns FROM cpu.utilization WHERE scope = 'process'
ORDER BY ts DESC LIMIT 60;

SELECT ts, scope, cpu_total_pct, rss_kb, thread_count, comm FROM cpu.utilization ORDER BY ts DESC
LIMIT 100;

SELECT ts, scope, cpu_total_pct, comm FROM cpu.utilization WHERE scope = 'process' ORDER BY ts
DESC LIMIT 200;

SELECT ts, cpu_total_pct, rss_kb, thread_count FROM cpu.utilization WHERE scope='process' ORDER BY
ts DESC LIMIT 3;

select ts, comm, rss_kb, thread_count from cpu.utilization where scope = 'process' order by ts
desc limit 10;

SELECT rss_kb FROM cpu.utilization WHERE scope = 'process' ORDER BY ts DESC LIMIT 1;

SELECT COALESCE(max(rss_kb), 0) AS metric FROM cpu.utilization;

SELECT * FROM cpu.tasks LIMIT 50;

SELECT * FROM process.cpu_stats LIMIT 20;

SELECT * FROM process.gpu_users LIMIT 20;

SELECT * FROM process.kmsg WHERE message LIKE '%oom%';

SELECT hca_name, port_rcv_packets, port_rcv_data, port_xmit_packets, port_xmit_data, link_downed,
np_cnp_sent, np_ecn_marked_roce_packets, rcv_pkts_rate, snd_pkts_rate, pfc_tx_packets,
pfc_rx_packets, pfc_available FROM rdma.mlx_hca;

SELECT timestamp, device, port, rcv_bytes_per_sec, xmit_bytes_per_sec FROM rdma.counters ORDER BY
timestamp DESC LIMIT 8;

SELECT timestamp, read_bytes, write_bytes, read_bytes_per_sec, write_bytes_per_sec FROM
io.utilization;

SELECT timestamp, interface, rx_bytes_per_sec, tx_bytes_per_sec FROM net.utilization;

SELECT timestamp, scope, comm, cpu_user_pct, cpu_sys_pct, cpu_total_pct, rss_kb, pss_kb,
thread_count, state, wchan, delta_vol_ctxt, delta_invol_ctxt, majflt FROM cpu.utilization;

SELECT comm, avg(cpu_total_pct) FROM cpu.utilization WHERE scope = 'thread' AND timestamp > now()
- interval '5 min' GROUP BY comm ORDER BY 2 DESC;

SELECT path, sum(size_bytes) FROM process.maps GROUP BY path;

SELECT kind, count(*) FROM process.fds GROUP BY kind;

SELECT name, soft, hard FROM process.limits;

SELECT key, value FROM process.envs WHERE key LIKE 'INLINE%' OR key LIKE 'MACA%' OR key LIKE
'CUDA%' LIMIT 50;

SELECT tid, comm, state, wchan FROM cpu.tasks LIMIT 32;

SELECT ts, tid, comm, state, wchan, delta_user_ns, delta_sys_ns, delta_total_ns FROM cpu.tasks
ORDER BY ts DESC, delta_total_ns DESC LIMIT 60;
