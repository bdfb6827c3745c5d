-- What customers of each score have bought.
CREATE MATERIALIZED VIEW sales_by_score
WITH (scenario = 'combined', propagate_every = '15m', refresh_every = '1h', policy = 1)
AS SELECT c.score, COUNT(*) AS sales, SUM(s.quantity) AS items, SUM(s.quantity * s.salesPrice) AS revenue
FROM customer c JOIN sales s ON c.custId = s.custId
GROUP BY c.score
