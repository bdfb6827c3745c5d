-- Sales to highly valued customers: Example 1.1 of the paper.
CREATE MATERIALIZED VIEW high_value_sales
WITH (scenario = 'combined', propagate_every = '1h', refresh_every = '24h', policy = 2)
AS SELECT c.custId, c.name, c.score, s.itemNo, s.quantity
FROM customer c JOIN sales s ON c.custId = s.custId
WHERE s.quantity <> 0 AND c.score = 'High'
