-- Customers of score High by what they have bought: a view over a view, refreshed whenever that one is.
-- owner: marketing
-- tags: retail
CREATE MATERIALIZED VIEW top_customers
AS SELECT custId, name, COUNT(*) AS purchases, SUM(quantity) AS items
FROM high_value_sales
GROUP BY custId, name
