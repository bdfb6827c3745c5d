"""Airflow's side: operators, sensors and the DAGs that are built from view files."""
