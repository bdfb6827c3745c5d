"""Airflow 3: operators, a sensor, and the DAGs made from view files. The only room that imports airflow."""
